/**
 * Registers `inspect`, `trace` and `check` with the command line. Each loads its code when it runs.
 */

import { command } from '../flags/add-command.ts';
import { CHECK_COMMAND, INSPECT_COMMAND, TRACE_COMMAND } from './flags.ts';

export const registerInspect = command({
  usage: 'inspect <model>',
  summary: 'the contents of a graph: nodes, parameters, FLOPs, operators',
  description:
    'Reads a graph and prints its contents.\n\nExample:\n  $ shardwright inspect model.fx.txt.gz',
  flags: INSPECT_COMMAND,
  run: async (options, { io }, path: string) =>
    (await import('./inspect.ts')).inspectCommand(path, options, io),
});

export const registerTrace = command({
  usage: 'trace <file>',
  summary: 'the graph of a traced TypeScript program',
  description:
    'Runs a program that exports `model` and `inputs` (docs/capture.md), and prints the ' +
    'graph that tracing the model gives.\n\nExample:\n  $ shardwright trace net.model.ts',
  flags: TRACE_COMMAND,
  run: async (options, { io }, path: string) =>
    (await import('./trace.ts')).traceCommand(path, options, io),
});

export const registerCheck = command({
  usage: 'check <model>',
  summary: 'type-check a program or a plan in a mode, and tell whether its types can be stripped',
  description:
    'Types every value per mesh axis. Lists operations that the mode forbids, conversions ' +
    'that it inserts, and values whose meaning on one device differs from the ' +
    'whole.\n\nExample:\n  $ shardwright check gated-mlp.model.ts --mode strict --mesh ' +
    'dp=2,tp=2',
  flags: CHECK_COMMAND,
  run: async (options, { io }, path: string) =>
    (await import('./check.ts')).checkCommand(path, options, io),
});
