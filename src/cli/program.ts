import { Command, CommanderError, Option } from 'commander';
import { EXIT, reportError, type CliIo } from './io.ts';

const collect = (value: string, list: string[]): string[] => [...list, value];

/** Runs the command line; resolves to the exit code. Solver and report code is loaded only by the commands that need it. */
export async function runCli(argv: readonly string[], io: CliIo): Promise<number> {
  let exit: number = EXIT.ok;
  const json = argv.includes('--json');
  const program = new Command('shardwright')
    .description('Plans where every tensor of a training graph lives on a device mesh, at the least time, with proof.')
    .version('0.1.0')
    .exitOverride()
    .showSuggestionAfterError(true)
    .configureOutput({ writeOut: io.stdout, writeErr: (text) => io.stderr(text) })
    .addHelpText(
      'after',
      '\nExample:\n  $ shardwright demo\n  $ shardwright plan model.fx.txt --mesh dp=8,tp=8 --cluster dgx-h100\n',
    );

  const model = (command: Command): Command =>
    command
      .option('--format <name>', 'format of the file, instead of detecting it')
      .option(
        '--role <NAME=role>',
        'correct the role of an input (parameter, buffer, input ...); repeatable',
        collect,
        [],
      )
      .option('--tie <a=b>', 'two parameters are one tensor; repeatable', collect, [])
      .option('--json', 'print exactly one JSON value');

  model(program.command('inspect <model>'))
    .summary('what a graph holds: nodes, parameters, FLOPs, operators')
    .description('Reads a graph and prints what it holds.\n\nExample:\n  $ shardwright inspect model.fx.txt.gz')
    .action(async (path: string, options) => {
      const { inspectCommand } = await import('./inspect.ts');
      exit = inspectCommand(path, options as Parameters<typeof inspectCommand>[1], io);
    });

  planFlags(model(program.command('plan <model>')))
    .summary('the cheapest placements on a mesh, with proof')
    .description(
      'Plans a graph on a mesh of devices and proves the plan.\n\nExample:\n  $ shardwright plan model.fx.txt.gz --mesh dp=8,tp=8 --cluster dgx-h100 --memory 60GiB',
    )
    .requiredOption('--mesh <dims>', 'mesh dims, outermost first, such as dp=8,tp=8')
    .requiredOption('--cluster <name>', 'node design such as dgx-h100, or a JSON file')
    .action(async (path: string, options) => {
      const { planCommand } = await import('./plan.ts');
      exit = await planCommand(path, options as Parameters<typeof planCommand>[1], io);
    });

  program
    .command('demo')
    .summary('plan the bundled 2-layer Llama graph on 64 H100s')
    .description('Plans a bundled real graph (2 layers of Llama-3 8B, forward and backward, written by PyTorch).')
    .option('--program', 'also print the program, each line with its placement')
    .option('--json', 'print exactly one JSON value')
    .action(async (options) => {
      const { demoCommand } = await import('./demo.ts');
      exit = await demoCommand(options as Parameters<typeof demoCommand>[0], io);
    });

  try {
    await program.parseAsync(argv, { from: 'user' });
  } catch (error) {
    if (error instanceof CommanderError) {
      if (error.exitCode !== 0 && json)
        io.stdout(
          `${JSON.stringify({ error: { code: 'E_USAGE', message: error.message.replace(/^error: /, '') } })}\n`,
        );
      return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
    }
    return reportError(error, io, json);
  }
  return exit;
}

function planFlags(command: Command): Command {
  return command
    .option('--memory <size>', 'budget per device, such as 60GiB (default: the usable memory of the device)')
    .option(
      '--pin <NODE=SPEC>',
      'fix the placement of a node or parameter, such as lm_head.weight=S(0)R; repeatable',
      collect,
      [],
    )
    .option('--inputs <SPEC>', 'one placement for all inputs, or free', 'free')
    .option('--outputs <SPEC>', 'one placement for all outputs, or free', 'free')
    .option(
      '--optimizer <name>',
      'none, sgd, adam, adamw-mixed (default: adamw-mixed for 16-bit weights, adam for float32)',
    )
    .addOption(new Option('--objective <name>', 'what is least').choices(['time', 'parameter-memory']).default('time'))
    .option('--cost <preset>', 'cost preset: alpha-beta, dtensor', 'alpha-beta')
    .option('--solver <name>', 'auto, exact, highs, javascript-lp-solver, propagate', 'auto')
    .option('--gap <fraction>', 'relative gap that is good enough; above it the exit code is 4', '0')
    .option('--time-limit <seconds>', 'stop the solver after this long')
    .option('--seed <n>', 'seed handed to the library solvers; our own engine has nothing random', '0')
    .option('--uneven <policy>', 'whether a dim may be cut into unequal pieces: allow, forbid', 'allow')
    .option('--unknown <policy>', 'operators without a record: refuse, replicate', 'refuse')
    .option('--no-sharing', 'price a redistribution at every use, even where one copy would serve several')
    .option('--no-recipes', 'leave out the comparison with the plain recipes')
    .option('--program', 'also print the program, each line with its placement')
    .option('--emit-ilp <file>', 'write the integer program in LP format')
    .option('-o, --output <dir>', 'write a plan folder')
    .option('--quiet', 'no progress on stderr');
}
