/** Registers `plan`, `verify`, `audit` and `demo` and their flags with the command line. */

import type { Command } from 'commander';
import type { CliSession } from '../flags/session.ts';
import { FLAG, modelFlags, planFlags, sizeFlags } from '../flags/flags.ts';

// Commands and their flags: what plans a model on a mesh. Each loads its code when it runs.

export function registerPlan(program: Command, session: CliSession): void {
  planFlags(sizeFlags(modelFlags(program.command('plan <model>'))))
    .summary('the cheapest placements on a mesh, with proof')
    .description(
      'Plans a graph on a mesh of devices and proves the plan. The model is a file, the name of a model, or - for stdin.\n\nExamples:\n  $ shardwright plan model.fx.txt.gz --mesh dp=8,tp=8 --cluster dgx-h100 --memory 60GiB\n  $ shardwright plan gpt2 --training --mesh dp=2,tp=8 --cluster dgx-h100 --pad-vocab 128\n  $ shardwright plan model.fx.txt.gz --mesh dp=2,tp=8 --cluster dgx-h100 --cost nccl --collectives nccl-table.txt',
    )
    .requiredOption('--mesh <dims>', 'mesh dims, outermost first, such as dp=8,tp=8')
    .requiredOption(...FLAG.cluster)
    .option(
      '--overlap',
      'look for a plan whose simulated step is shorter, with communication beside compute; at most 5 % slower without overlap',
    )
    .option('--range', 'price the plan at the least and the largest sizes that the program admits, too')
    .option(
      '--frontier [points]',
      'time against memory instead of one plan: the plans that none beats in both, from the budget down, and the knee (default: 8 points, --checkpoint auto)',
    )
    .option('--pp <stages>', 'of a model by name or config: cut it into pipeline stages, each on a mesh of its own')
    .option('--schedule <name>', 'with --pp: gpipe, 1f1b, interleaved, zb-h1, zb-h2 (default: 1f1b)')
    .option('--microbatches <n>', 'with --pp: pieces of the batch (default: the most that divide it, up to 4 a stage)')
    .option('--virtual <n>', 'with --pp: chunks of layers on each device, of the interleaved schedule')
    .action(async (path: string, options) => {
      await checkMesh(options as { readonly mesh?: string });
      const { planCommand } = await import('./plan.ts');
      session.exit = await planCommand(path, options as Parameters<typeof planCommand>[1], session.io, session.control);
    });
}

export function registerVerify(program: Command, session: CliSession): void {
  planFlags(sizeFlags(modelFlags(program.command('verify <model|plan>'))))
    .summary('run the plan with numbers on virtual devices, against the unsharded run')
    .description(
      'Plans a model, or takes a written plan, reduces its sizes, lowers it to the program of every device, runs that on virtual devices in float64 and compares every tensor, output and gradient with the single-device run, and the collectives with those of the plan.\n\nExample:\n  $ shardwright verify model.fx.txt.gz --mesh dp=2,tp=2\n  $ shardwright verify out/',
    )
    .option('--mesh <dims>', 'mesh dims, outermost first, such as dp=2,tp=2; a plan has its own')
    .option(...FLAG.cluster, 'dgx-h100')
    .option('--tolerance <error>', 'relative error above which a tensor is wrong', '1e-9')
    .option('--replan', 'plan the reduced model, instead of placing it as the plan of the full-size model says')
    .option('--no-shrink', "run at the model's own sizes")
    .action(async (path: string, options, command: Command) => {
      await checkMesh(options as { readonly mesh?: string });
      const { verifyCommand } = await import('./verify.ts');
      const asked = options as Parameters<typeof verifyCommand>[1];
      const given = Object.keys(asked).filter((name) => command.getOptionValueSource(name) === 'cli');
      session.exit = await verifyCommand(path, { ...asked, given }, session.io, session.control);
    });
}

export function registerAudit(program: Command, session: CliSession): void {
  planFlags(sizeFlags(modelFlags(program.command('audit <model>'))))
    .summary('how far a plan is from the optimum, and the edits that bring it nearer')
    .description(
      'Prices a plan on the problem that the optimizer solves, and finds the best few changes. Exit 4 above the allowed regret.\n\nExample:\n  $ shardwright audit model.fx.txt.gz --plan recipe:fsdp+tp --mesh dp=8,tp=8 --cluster dgx-h100 --max-regret 3%',
    )
    .requiredOption(
      '--plan <plan>',
      'plan folder or file, recipe:NAME, or given: the shardings that the model file states',
    )
    .option('--mesh <dims>', 'mesh dims, outermost first (default for given: that of the model file)')
    .option(...FLAG.cluster)
    .option('--edits <k>', 'most edits of the path', '3')
    .option('--max-regret <fraction>', 'regret above which the exit code is 4, such as 3% (default: none)')
    .action(async (path: string, options) => {
      await checkMesh(options as { readonly mesh?: string });
      const { auditCommand } = await import('./audit.ts');
      session.exit = await auditCommand(
        path,
        options as Parameters<typeof auditCommand>[1],
        session.io,
        session.control,
      );
    });
}

export function registerDemo(program: Command, session: CliSession): void {
  program
    .command('demo')
    .summary('plan the bundled 2-layer Llama graph on 64 H100s')
    .description('Plans a bundled real graph (2 layers of Llama-3 8B, forward and backward, written by PyTorch).')
    .option('--program', 'also print the program, each line with its placement')
    .option(...FLAG.json)
    .action(async (options) => {
      const { demoCommand } = await import('./demo.ts');
      session.exit = await demoCommand(options as Parameters<typeof demoCommand>[0], session.io);
    });
}

/** The mesh is read before the model: a slip in it would otherwise be reported as one of the file. */
async function checkMesh({ mesh }: { readonly mesh?: string }): Promise<void> {
  if (mesh === undefined) return;
  const { checkMeshFlag } = await import('../../input/mesh-flag.ts');
  checkMeshFlag(mesh);
}
