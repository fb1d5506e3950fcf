"""What `shardwright.measure` is made of: how points are timed, what is timed, and the cluster file that it becomes."""
