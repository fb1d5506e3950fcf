/**
 * Tests of the Python package that run beside its others: scripts and models that train on several
 * processes.
 */
export const TRAINING: readonly string[] = ['test_examples.py', 'test_training.py'];
