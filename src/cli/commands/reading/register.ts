/** Registers `inspect`, `trace`, `check` and `validate` and their flags with the command line. */

import type { Command } from 'commander';
import type { CliSession } from '../flags/session.ts';
import { collect, FLAG, modelFlags, sizeFlags } from '../flags/flags.ts';

// Commands and their flags: what reads a model and plans nothing. Each loads its code when it runs.

export function registerInspect(program: Command, session: CliSession): void {
  sizeFlags(modelFlags(program.command('inspect <model>')))
    .summary('what a graph holds: nodes, parameters, FLOPs, operators')
    .description('Reads a graph and prints what it holds.\n\nExample:\n  $ shardwright inspect model.fx.txt.gz')
    .action(async (path: string, options) => {
      const { inspectCommand } = await import('./inspect.ts');
      session.exit = await inspectCommand(path, options as Parameters<typeof inspectCommand>[1], session.io);
    });
}

export function registerTrace(program: Command, session: CliSession): void {
  program
    .command('trace <file>')
    .summary('the graph of a traced TypeScript program')
    .description(
      'Runs a program that exports `model` and `inputs` (docs/capture.md), and prints the graph that tracing the model gives.\n\nExample:\n  $ shardwright trace net.model.ts',
    )
    .option(...FLAG.json)
    .action(async (path: string, options) => {
      const { traceCommand } = await import('./trace.ts');
      session.exit = await traceCommand(path, options as Parameters<typeof traceCommand>[1], session.io);
    });
}

export function registerCheck(program: Command, session: CliSession): void {
  sizeFlags(modelFlags(program.command('check <model>')))
    .summary('what a mode forbids in a program or a plan, and whether its types can be stripped')
    .description(
      'Types every value per mesh axis and says what the mode forbids, what it does by itself, and where one device means something else than the whole.\n\nExample:\n  $ shardwright check gated-mlp.model.ts --mode strict --mesh dp=2,tp=2',
    )
    .requiredOption('--mode <mode>', 'auto, explicit, strict or manual')
    .option('--mesh <dims>', 'mesh dims, outermost first, such as dp=2,tp=4; default the mesh that the program names')
    .option('--type <name=spec>', 'type of an input, such as x=P("dp",None) (repeatable)', collect, [])
    .action(async (path: string, options) => {
      const { checkCommand } = await import('./check.ts');
      session.exit = await checkCommand(path, options as Parameters<typeof checkCommand>[1], session.io);
    });
}

export function registerValidate(program: Command, session: CliSession): void {
  program
    .command('validate <runs.csv>')
    .summary('predicted against measured training runs: rank, regret, error, memory')
    .description(
      'Predicts every training run of a table from its dimensions and its parallel plan, and compares with what was measured. Columns framework, framework_version, head_dim, grad_accum, mtp, dispatcher, logit_bytes, gradient_bytes and optimizer_bytes state the software; where they are missing, it is told by the layout and the output says so.\n\nExample:\n  $ shardwright validate measured_runs.csv --groups',
    )
    .option('--groups', 'also print every group of comparable runs')
    .option(...FLAG.json)
    .action(async (path: string, options) => {
      const { validateCommand } = await import('../tools/validate.ts');
      session.exit = validateCommand(path, options as Parameters<typeof validateCommand>[1], session.io);
    });
}
