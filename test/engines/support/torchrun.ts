/** The arguments by which Python starts a script on four processes, as `torchrun` does. */
export const torchrun = (logs: string, script: string): string[] => [
  ...['-m', 'torch.distributed.run', '--log-dir', logs],
  ...['--standalone', '--nproc-per-node', '4', script],
];
