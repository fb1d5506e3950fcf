/** Registers the commands that read a written plan, and their flags, with the command line. */

import type { Command } from 'commander';
import type { CliSession } from '../flags/session.ts';
import { FLAG, collect } from '../flags/flags.ts';

// Commands and their flags: what takes a written plan. Each loads its code when it runs.

export function registerCheckPlan(program: Command, session: CliSession): void {
  program
    .command('check-plan <plan>')
    .summary('whether a written plan is what it says: re-costed, every field compared, its certificate replayed')
    .description(
      'Checks a plan folder against its own graph, request and certificate, without solving. It derives every field anew from the graph and the request and compares, re-costs the plan from its placements, and replays the proof of its bound. Exit 5 where a field differs, with its JSON path.\n\nExample:\n  $ shardwright check-plan out/',
    )
    .option('--ops <file>', 'operators of your own that the plan was made with; repeatable', collect, [])
    .option(...FLAG.json)
    .action(async (path: string, options) => {
      const { checkPlanCommand } = await import('./check-plan.ts');
      session.exit = await checkPlanCommand(path, options as Parameters<typeof checkPlanCommand>[1], session.io);
    });
}

export function registerReport(program: Command, session: CliSession): void {
  program
    .command('report <plan>')
    .summary('a plan or a comparison as one HTML file that opens from disk, or as Markdown, text, JSON or CSV')
    .description(
      'Writes what a plan says: the answer, placements by layer, roofline, timeline, memory timeline, recipes, the program, proof, assumptions with sources. Also takes what `compare --json` prints.\n\nExamples:\n  $ shardwright report out/ -o report.html\n  $ shardwright report out/ --format md',
    )
    .option('-o, --output <file>', 'write a file (default: stdout)')
    .option('--format <name>', 'html, md, text, json, csv (default: by the ending of the file, else html)')
    .option(
      '--draw <name>',
      'parameter to draw as a matrix of matrices; repeatable (default: four of them)',
      collect,
      [],
    )
    .option('--no-recipes', 'leave out the recipes, which are priced anew')
    .option(
      '--what-if',
      'solve anew: without the memory budget, on faster and slower links, and as asked where the solver’s steps do not lie beside the plan (several solves)',
    )
    .option('--json', 'the same as --format json')
    .action(async (path: string, options) => {
      const { reportCommand } = await import('./report.ts');
      session.exit = await reportCommand(path, options as Parameters<typeof reportCommand>[1], session.io);
    });
}

export function registerSimulate(program: Command, session: CliSession): void {
  program
    .command('simulate <plan>')
    .summary('the timeline of one step: compute beside communication, memory, trace')
    .description(
      'Plays a plan on one device, compute and communication side by side, and says how long the step takes, what of the communication is not hidden, and how much memory is alive at once.\n\nExample:\n  $ shardwright simulate out/ --trace trace.json',
    )
    .option('--trace <file>', 'write the timeline for ui.perfetto.dev')
    .option('--prefetch <n>', 'calls that gathers of weights run ahead, 0 for none, or auto: the fastest', 'auto')
    .option('--in-flight <size>', 'most bytes of gathered weights that wait for their call', '2GB')
    .option(
      '--bucket <size>',
      'most bytes of one bucket of collectives, 0 for none, or auto: the faster of none and 25MiB',
      'auto',
    )
    .option(
      '--memory <size>',
      'most bytes alive at once: what runs ahead waits where it would be more; or plan: its budget, or none',
      'plan',
    )
    .option('--async-tp', 'take gathers and scatters apart with the matrix products beside them')
    .option('--slowdown <factor>', 'time of compute beside communication, relative to compute alone', '1')
    .option(...FLAG.json)
    .action(async (path: string, options) => {
      const { simulateCommand } = await import('./simulate.ts');
      session.exit = simulateCommand(path, options as Parameters<typeof simulateCommand>[1], session.io);
    });
}

export function registerExplain(program: Command, session: CliSession): void {
  program
    .command('explain <plan> <node>')
    .summary('why a node is placed as it is, and what another placement would cost')
    .description(
      'Lists the strategies of a node with their costs; with --force solves the plan again with the node placed so, and says what changes and why.\n\nExample:\n  $ shardwright explain out/ model.lm_head.weight --force RR',
    )
    .option('--force <spec>', 'placement of its result to solve again with, such as S(0)R')
    .option('--limit <n>', 'lines of each table', '12')
    .option(...FLAG.json)
    .option(...FLAG.quiet)
    .action(async (path: string, node: string, options) => {
      const { explainCommand } = await import('./explain.ts');
      session.exit = await explainCommand(path, node, options as Parameters<typeof explainCommand>[2], session.io);
    });
}

export function registerDiff(program: Command, session: CliSession): void {
  program
    .command('diff <a> <b>')
    .summary('what differs between two plans: placements, seconds, bytes, collectives')
    .description(
      'Compares two plans of one model, folders or plan files.\n\nExample:\n  $ shardwright diff before/ after/',
    )
    .option(...FLAG.json)
    .action(async (a: string, b: string, options) => {
      const { diffCommand } = await import('./diff.ts');
      session.exit = diffCommand(a, b, options as Parameters<typeof diffCommand>[2], session.io);
    });
}

export function registerExport(program: Command, session: CliSession): void {
  program
    .command('export [plan]')
    .summary('a plan as what an engine runs: a PyTorch program, and the files of other engines')
    .description(
      'Writes a plan for an engine. --target torch is the program of each device itself: forward and backward with the collectives of the plan, which the Python package runs. Targets that cannot say all of a plan refuse it, with the list of what they lose; --allow-lossy writes the rest. Without arguments: the targets.\n\nExamples:\n  $ shardwright export\n  $ shardwright export out/ --target torch -o out/torch',
    )
    .option('--target <name>', 'engine or format; `shardwright export` lists them')
    .option('-o, --output <dir>', 'folder for the files (default: stdout where there is one)')
    .option('--allow-lossy', 'write what the target can say, with what it cannot as comments at the top')
    .option('--ops <file>', 'operators of your own that the plan was made with; repeatable', collect, [])
    .option(...FLAG.json)
    .action(async (path: string | undefined, options) => {
      const { exportCommand } = await import('./export.ts');
      session.exit = await exportCommand(path, options as Parameters<typeof exportCommand>[1], session.io);
    });
}
