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
      .option(
        '--input <NAME=type>',
        'type of an input that the file does not state, x=f32[8,16]; repeatable',
        collect,
        [],
      )
      .option(
        '--ops <file>',
        'operators and rules of your own: a rules file (.json), or a program that exports `operators`; repeatable',
        collect,
        [],
      )
      .option('--select <title>', 'which graph of a log, "Joint graph 0"')
      .option('--size <NAME=n>', 'value of a size that the model leaves open, s77=64; repeatable', collect, [])
      .option('--json', 'print exactly one JSON value');

  // Sizes of what is built from a config; graph files have theirs in them.
  const sized = (command: Command): Command =>
    command
      .option('--batch <n>', 'sequences at once, of a model name or config (default: 8)')
      .option(
        '--seq <n>',
        'tokens of a sequence, of a model name or config (default: 2048, or what the positions allow)',
      )
      .option('--dtype <name>', 'element type, of a model name or config (default: what the config states, else bf16)')
      .option('--layers <n>', 'layers, of a model name or config (default: what the config states)')
      .option('--training', 'loss and gradients of a model name or config (default: the forward pass only)');

  sized(model(program.command('inspect <model>')))
    .summary('what a graph holds: nodes, parameters, FLOPs, operators')
    .description('Reads a graph and prints what it holds.\n\nExample:\n  $ shardwright inspect model.fx.txt.gz')
    .action(async (path: string, options) => {
      const { inspectCommand } = await import('./inspect.ts');
      exit = await inspectCommand(path, options as Parameters<typeof inspectCommand>[1], io);
    });

  program
    .command('trace <file>')
    .summary('the graph of a traced TypeScript program')
    .description(
      'Runs a program that exports `model` and `inputs` (docs/capture.md), and prints the graph that tracing the model gives.\n\nExample:\n  $ shardwright trace net.model.ts',
    )
    .option('--json', 'print exactly one JSON value')
    .action(async (path: string, options) => {
      const { traceCommand } = await import('./trace.ts');
      exit = await traceCommand(path, options as Parameters<typeof traceCommand>[1], io);
    });

  planFlags(sized(model(program.command('plan <model>'))))
    .summary('the cheapest placements on a mesh, with proof')
    .description(
      'Plans a graph on a mesh of devices and proves the plan.\n\nExample:\n  $ shardwright plan model.fx.txt.gz --mesh dp=8,tp=8 --cluster dgx-h100 --memory 60GiB',
    )
    .requiredOption('--mesh <dims>', 'mesh dims, outermost first, such as dp=8,tp=8')
    .requiredOption('--cluster <name>', 'node design such as dgx-h100, or a JSON file')
    .option('--range', 'price the plan at the least and the largest sizes that the program admits, too')
    .option('--pp <stages>', 'of a model by name or config: cut it into pipeline stages, each on a mesh of its own')
    .option('--schedule <name>', 'with --pp: gpipe, 1f1b, interleaved, zb-h1, zb-h2 (default: 1f1b)')
    .option('--microbatches <n>', 'with --pp: pieces of the batch (default: the most that divide it, up to 4 a stage)')
    .option('--virtual <n>', 'with --pp: chunks of layers on each device, of the interleaved schedule')
    .action(async (path: string, options) => {
      const { planCommand } = await import('./plan.ts');
      exit = await planCommand(path, options as Parameters<typeof planCommand>[1], io);
    });

  planFlags(sized(model(program.command('verify <model>'))))
    .summary('run the plan with numbers on virtual devices, against the unsharded run')
    .description(
      'Plans a model, reduces its sizes, lowers it to the program of every device, runs that on virtual devices in float64 and compares every tensor, output and gradient with the single-device run, and the collectives with those of the plan.\n\nExample:\n  $ shardwright verify model.fx.txt.gz --mesh dp=2,tp=2',
    )
    .requiredOption('--mesh <dims>', 'mesh dims, outermost first, such as dp=2,tp=2')
    .option('--cluster <name>', 'node design such as dgx-h100, or a JSON file', 'dgx-h100')
    .option('--tolerance <error>', 'relative error above which a tensor is wrong', '1e-9')
    .option('--replan', 'plan the reduced model, instead of placing it as the plan of the full-size model says')
    .option('--no-shrink', "run at the model's own sizes")
    .action(async (path: string, options) => {
      const { verifyCommand } = await import('./verify.ts');
      exit = await verifyCommand(path, options as Parameters<typeof verifyCommand>[1], io);
    });

  program
    .command('einshard [expression]')
    .summary('what an einshard expression means: mesh, placements, blocks')
    .description(
      "Reads the einshard notation and prints who holds what.\n\nExample:\n  $ shardwright einshard 'a b -> 2 a2* b*' --shape 4,8 --devices 16 --draw",
    )
    .option('--shape <sizes>', 'global shape of the tensor, such as 4,8')
    .option('--devices <n>', 'number of devices')
    .option('--draw', 'also draw the devices of every block')
    .option('--program <file>', 'JSON file with devices, tensors and einsum steps: their placements and collectives')
    .option('--json', 'print exactly one JSON value')
    .action(async (expression: string | undefined, options) => {
      const { einshardCommand } = await import('./einshard.ts');
      exit = einshardCommand(expression, options as Parameters<typeof einshardCommand>[1], io);
    });

  program
    .command('solve <problem>')
    .summary('the cheapest choice of an IOPDDL problem, with bound and certificate')
    .description(
      'Solves a choice problem with memory over time (google/iopddl; JSON or gzipped JSON).\n\nExample:\n  $ shardwright solve problem.json.gz --time-limit 60',
    )
    .option('--time-limit <seconds>', 'stop after this long, reading included')
    .option('--gap <fraction>', 'relative gap that is good enough; above it the exit code is 4', '0')
    .option('--seed <n>', 'seed of the search', '0')
    .option('--threads <n>', 'worker threads; the answer to a number of rounds does not depend on it', '2')
    .option('--rounds <n>', 'stop after so many rounds of search: a limit that gives the same answer on every machine')
    .option('--certificate <file>', 'write the certificate of the bound')
    .option('--json', 'print exactly one JSON value')
    .option('--quiet', 'no progress on stderr')
    .action(async (path: string, options) => {
      const { solveCommand } = await import('./solve.ts');
      exit = await solveCommand(path, options as Parameters<typeof solveCommand>[1], io);
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

  program
    .command('draw')
    .summary('a tensor, a layout or a placement as a matrix of matrices')
    .description(
      "Draws a tensor of any rank as a matrix of matrices: its values, the offsets of a layout, or the devices of a placement with lines at shard borders.\n\nExamples:\n  $ shardwright draw --shape 2,2,2,2 --cut 0,1\n  $ shardwright draw --layout '((2,2),2):((2,4),1)' --order lex\n  $ shardwright draw --shape 4,4 --mesh dp=2,tp=2 --placement 'S(0)S(1)' --svg picture.svg",
    )
    .option('--shape <sizes>', 'sizes of the dims, outermost first, such as 2,2,2,2 (default: the modes of the layout)')
    .option('--cut <dims>', 'dims to cut everywhere, or before one slice: 0,1@2')
    .option('--layout <layout>', 'show the offsets of a layout, such as (4,2):(2,1); needs --order')
    .option('--order <order>', 'which coordinate is the fastest: lex (the last) or colex (the first)')
    .option('--placement <spec>', 'show who holds each element: S(0)R, P("tp", None), or einshard text')
    .option('--mesh <dims>', 'mesh of the placement, outermost dim first, such as dp=2,tp=2')
    .option('--devices <n>', 'number of devices, for einshard text without --mesh')
    .option('--no-borders', 'draw no lines at shard borders')
    .option('--svg <file>', 'also write the drawing as SVG')
    .option('--json', 'print exactly one JSON value')
    .action(async (options) => {
      const { drawCommand } = await import('./draw.ts');
      exit = drawCommand(options as Parameters<typeof drawCommand>[0], io);
    });

  program
    .command('layout <expression>')
    .summary('layout algebra: coalesce, compose, complement, divide, product, inverse')
    .description(
      "Evaluates one function of the layout algebra (CuTe) and prints the resulting layout.\n\nFunctions: show, flatten, coalesce, coalesce_modes, compose, complement, right_inverse, left_inverse; in colex order also logical_divide, zipped_divide, tiled_divide, flat_divide, logical_product, zipped_product, tiled_product, flat_product, blocked_product, raked_product.\n\nArguments: layouts SHAPE:STRIDE, compact in the order without strides; complement takes a bound second. The second argument of compose, divides and products may go by mode: <3:4,8:2>, _ for a mode left alone, or a bare shape (3,8), whose sizes have stride 1.\n\nExamples:\n  $ shardwright layout 'compose (6,2):(8,2) (4,3):(3,1)' --order colex\n  $ shardwright layout 'zipped_divide (4,4):(1,4) <2:1,2:2>' --order colex --json",
    )
    .option('--order <order>', 'which coordinate is the fastest: lex (the last) or colex (the first); no default')
    .option('--json', 'print exactly one JSON value')
    .action(async (expression: string, options) => {
      const { layoutCommand } = await import('./layout.ts');
      exit = layoutCommand(expression, options as Parameters<typeof layoutCommand>[1], io);
    });

  program
    .command('redistribute <from> <to>')
    .summary('the cheapest way from one placement of a tensor to another')
    .description(
      "Plans how a tensor gets from one placement to another, with its collectives, their bytes and seconds.\n\nExample:\n  $ shardwright redistribute 'S(0)S(1)' 'S(1)S(0)' --mesh dp=2,tp=2 --shape 4096,4096 --dtype bf16",
    )
    .requiredOption('--mesh <dims>', 'mesh dims, outermost first, such as dp=2,tp=2')
    .requiredOption('--shape <sizes>', 'global shape of the tensor, such as 8,8')
    .option('--dtype <name>', 'element type, such as f32 or bf16', 'f32')
    .option('--cost <preset>', 'cost preset: alpha-beta, nccl, dtensor, autoparallel', 'alpha-beta')
    .option('--cluster <name>', 'node design such as dgx-h100, or a JSON file', 'dgx-h100')
    .option('--no-merge', 'one mesh dim at a time, as DTensor does')
    .option('--json', 'print exactly one JSON value')
    .action(async (from: string, to: string, options) => {
      const { redistributeCommand } = await import('./redistribute.ts');
      exit = redistributeCommand(from, to, options as Parameters<typeof redistributeCommand>[2], io);
    });

  program
    .command('rules')
    .summary('the sharding rules of operators, tried by execution')
    .description(
      'Lists the sharding rules of operators at their sample calls; with --check runs them on simulated ranks, by brute force over every placement of inputs and results, and lists the rules that are wrong and the ones that are missing.\n\nExamples:\n  $ shardwright rules --op mm\n  $ shardwright rules --op aten.softmax.int --check',
    )
    .option('--op <name>', 'one operator, such as mm or aten.sum.dim_IntList; default all')
    .option('--check', 'run the rules and search for missing ones')
    .option('--ranks <list>', 'numbers of simulated ranks (default: 2,3)')
    .option('--budget <n>', 'combinations tried for one call before it is left out (default: 50000)')
    .option('--json', 'print exactly one JSON value')
    .action(async (options) => {
      const { rulesCommand } = await import('./rules.ts');
      exit = rulesCommand(options as Parameters<typeof rulesCommand>[0], io);
    });

  program
    .command('validate <runs.csv>')
    .summary('predicted against measured training runs: rank, regret, error, memory')
    .description(
      'Predicts every training run of a table from its dimensions and its parallel plan, and compares with what was measured.\n\nExample:\n  $ shardwright validate measured_runs.csv --groups',
    )
    .option('--groups', 'also print every group of comparable runs')
    .option('--json', 'print exactly one JSON value')
    .action(async (path: string, options) => {
      const { validateCommand } = await import('./validate.ts');
      exit = validateCommand(path, options as Parameters<typeof validateCommand>[1], io);
    });

  program
    .command('report <plan>')
    .summary('a plan or a comparison as one HTML file that opens from disk, or as Markdown, text, JSON or CSV')
    .description(
      'Writes what a plan says: the answer, placements by layer, roofline and timeline, memory over time, known plans beside it, the program, proof, assumptions with sources. Also takes what `compare --json` prints.\n\nExamples:\n  $ shardwright report out/ -o report.html\n  $ shardwright report out/ --format md',
    )
    .option('-o, --output <file>', 'write a file (default: stdout)')
    .option('--format <name>', 'html, md, text, json, csv (default: by the ending of the file, else html)')
    .option(
      '--draw <name>',
      'parameter to draw as a matrix of matrices; repeatable (default: four of them)',
      collect,
      [],
    )
    .option('--no-recipes', 'leave out the plain recipes, which are priced anew')
    .option('--what-if', 'solve anew without the memory budget, and on faster and slower links (several solves)')
    .option('--json', 'the same as --format json')
    .action(async (path: string, options) => {
      const { reportCommand } = await import('./report.ts');
      exit = await reportCommand(path, options as Parameters<typeof reportCommand>[1], io);
    });

  program
    .command('simulate <plan>')
    .summary('a step of a plan over time: compute beside communication, memory, trace')
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
    .option('--async-tp', 'take gathers and scatters apart with the matrix products beside them')
    .option('--slowdown <factor>', 'time of compute beside communication, relative to compute alone', '1')
    .option('--json', 'print exactly one JSON value')
    .action(async (path: string, options) => {
      const { simulateCommand } = await import('./simulate.ts');
      exit = simulateCommand(path, options as Parameters<typeof simulateCommand>[1], io);
    });

  program
    .command('explain <plan> <node>')
    .summary('why a node is placed as it is, and what another placement would cost')
    .description(
      'Lists the strategies of a node with their costs; with --force solves the plan again with the node placed so, and says what changes and why.\n\nExample:\n  $ shardwright explain out/ model.lm_head.weight --force RR',
    )
    .option('--force <spec>', 'placement of its result to solve again with, such as S(0)R')
    .option('--limit <n>', 'lines of each table', '12')
    .option('--json', 'print exactly one JSON value')
    .option('--quiet', 'no progress on stderr')
    .action(async (path: string, node: string, options) => {
      const { explainCommand } = await import('./explain.ts');
      exit = await explainCommand(path, node, options as Parameters<typeof explainCommand>[2], io);
    });

  program
    .command('diff <a> <b>')
    .summary('what differs between two plans: placements, seconds, bytes, collectives')
    .description(
      'Compares two plans of one model, folders or plan files.\n\nExample:\n  $ shardwright diff before/ after/',
    )
    .option('--json', 'print exactly one JSON value')
    .action(async (a: string, b: string, options) => {
      const { diffCommand } = await import('./diff.ts');
      exit = diffCommand(a, b, options as Parameters<typeof diffCommand>[2], io);
    });

  const hardwareCommand = program
    .command('hardware')
    .summary('the node designs that --cluster takes, with sources')
    .description('Lists the built-in node designs.\n\nExample:\n  $ shardwright hardware show dgx-h100');
  hardwareCommand
    .command('list')
    .summary('every node design')
    .description('Lists the node designs that --cluster takes.\n\nExample:\n  $ shardwright hardware list')
    .option('--json', 'print exactly one JSON value')
    .action(async (options) => {
      const { hardwareListCommand } = await import('./hardware.ts');
      exit = hardwareListCommand(options as Parameters<typeof hardwareListCommand>[0], io);
    });
  hardwareCommand
    .command('show <name>')
    .summary('every constant of one, with its unit and source')
    .description(
      'Prints the constants of a node design, or of a JSON file of your own.\n\nExample:\n  $ shardwright hardware show dgx-h100',
    )
    .option('--json', 'print exactly one JSON value')
    .action(async (name: string, options) => {
      const { hardwareShowCommand } = await import('./hardware.ts');
      exit = hardwareShowCommand(name, options as Parameters<typeof hardwareShowCommand>[1], io);
    });

  const models = program.command('models').summary('the models that are known by name');
  models
    .command('list')
    .summary('names, families, parameters')
    .description('Lists the models that every command takes by name.\n\nExample:\n  $ shardwright models list')
    .option('--json', 'print exactly one JSON value')
    .action(async (options) => {
      const { listModels } = await import('./models.ts');
      exit = listModels(options as Parameters<typeof listModels>[0], io);
    });
  models
    .command('show <name>')
    .summary('one model: sizes, parameters, where its config is from')
    .description('Shows one model.\n\nExample:\n  $ shardwright models show llama-3.1-8b')
    .option('--json', 'print exactly one JSON value')
    .action(async (name: string, options) => {
      const { showModel } = await import('./models.ts');
      exit = showModel(name, options as Parameters<typeof showModel>[1], io);
    });

  sized(model(program.command('compare [model]')))
    .summary('the zoo and the optimum on every mesh of some devices')
    .description(
      'Prices the plans that people write by hand and the optimum on every mesh, and says which is best and why the others are not. A model by name is compared over pipeline stages too, from its layers.\n\nExamples:\n  $ shardwright compare llama-3.1-70b --devices 256 --cluster dgx-h100 --seq 8192 --global-batch 512\n  $ shardwright compare model.fx.txt.gz --devices 64 --cluster dgx-h100 --plans fsdp,dp+tp,optimum',
    )
    .option('--devices <n>', 'number of devices')
    .option('--cluster <name>', 'node design such as dgx-h100, or a JSON file')
    .option('--plans <names>', 'plans of the zoo, and optimum, separated by commas (default: all)')
    .option('--max-dims <n>', 'most dims of a mesh: 1, 2 or 3', '3')
    .option('--memory <size>', 'budget per device, such as 60GiB (default: the usable memory of the device)')
    .option(
      '--optimizer <name>',
      'none, sgd, adam, adamw-mixed (default: adamw-mixed for 16-bit weights, adam for float32)',
    )
    .option('--cost <preset>', 'cost preset: alpha-beta, nccl, dtensor, autoparallel', 'alpha-beta')
    .option('--gap <fraction>', 'relative gap of the optimum that is good enough', '0')
    .option('--time-limit <seconds>', 'stop the solver on a mesh after this long')
    .option('--global-batch <n>', 'sequences of one step, for a model by name (default: one a device)')
    .option('--threads <n>', 'threads that price, for a model by name (default: one a core, at most 8)')
    .option('--resume <file>', 'keep what was priced in a file, and go on from it, for a model by name')
    .option('--slice <i/n>', 'only the i-th of n parts of the meshes')
    .option('--merge <file>', 'put together what --slice --json wrote; repeatable', collect, [])
    .option('--quiet', 'no progress on stderr')
    .action(async (path: string | undefined, options) => {
      const { compareCommand } = await import('./compare.ts');
      exit = await compareCommand(path, options as Parameters<typeof compareCommand>[1], io);
    });

  planFlags(sized(model(program.command('audit <model>'))))
    .summary('how far a plan is from the optimum, and the edits that bring it nearer')
    .description(
      'Prices a plan on the problem that the optimizer solves, and finds the best few changes. Exit 4 above the allowed regret.\n\nExample:\n  $ shardwright audit model.fx.txt.gz --plan zoo:fsdp+tp --mesh dp=8,tp=8 --cluster dgx-h100 --max-regret 3%',
    )
    .requiredOption(
      '--plan <plan>',
      'plan folder or file, zoo:NAME, or given: the shardings that the model file states',
    )
    .option('--mesh <dims>', 'mesh dims, outermost first (default for given: that of the model file)')
    .option('--cluster <name>', 'node design such as dgx-h100, or a JSON file')
    .option('--edits <k>', 'most edits of the path', '3')
    .option('--max-regret <fraction>', 'regret above which the exit code is 4, such as 3% (default: none)')
    .action(async (path: string, options) => {
      const { auditCommand } = await import('./audit.ts');
      exit = await auditCommand(path, options as Parameters<typeof auditCommand>[1], io);
    });

  const zooCommand = program
    .command('zoo')
    .summary('the plans that people write by hand, and what is wrong with one')
    .description('Lists the zoo, or lints a plan of it.\n\nExample:\n  $ shardwright zoo list --mesh dp=2,tp=4');
  zooCommand
    .command('list')
    .summary('every plan: axes, what it shards, its collectives')
    .description('Lists the plans that compare and audit take.\n\nExample:\n  $ shardwright zoo list --mesh dp=2,tp=4')
    .option('--mesh <dims>', 'only plans with as many axes, with their process groups')
    .option('--cluster <name>', 'node design whose hosts are counted', 'dgx-h100')
    .option('--json', 'print exactly one JSON value')
    .action(async (options) => {
      const { zooListCommand } = await import('./zoo.ts');
      exit = zooListCommand(options as Parameters<typeof zooListCommand>[0], io);
    });
  model(zooCommand.command('lint <model>'))
    .summary('what is wrong with a plan on a mesh')
    .description(
      'Checks a plan of the zoo against the sizes of a model; exit 5 where it has an error.\n\nExample:\n  $ shardwright zoo lint model.fx.txt.gz --plan dp+tp --mesh dp=8,tp=8',
    )
    .requiredOption('--plan <name>', 'plan of the zoo')
    .requiredOption('--mesh <dims>', 'sizes of its axes, outermost first; one may be -1 with --devices')
    .option('--cluster <name>', 'node design whose hosts are counted', 'dgx-h100')
    .option('--devices <n>', 'number of devices')
    .option('--batch <n>', 'global batch (default: that of the graph)')
    .option('--seq <n>', 'tokens of a sequence (default: those of the graph)')
    .option('--microbatch <n>', 'sequences of a microbatch and data rank (default: 1)')
    .action(async (path: string, options) => {
      const { zooLintCommand } = await import('./zoo.ts');
      exit = await zooLintCommand(path, options as Parameters<typeof zooLintCommand>[1], io);
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
      'fix the placement of a node or parameter, such as lm_head.weight=S(0)R or w=a b -> a8 b 8; repeatable',
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
    .addOption(
      new Option('--maps <how>', 'cut the tensors in the bodies of maps, or share out their rows').choices([
        'bodies',
        'rows',
      ]),
    )
    .option(
      '--activations <how>',
      'memory of activations: report (default: compute and say it), constraint (keep the peak within the budget), off',
    )
    .option(
      '--checkpoint <policy>',
      'run forward nodes again in the backward pass: none (default), full, selective, a share from 0 to 1, two-stage (chosen after the placements), auto (chosen with them; both hold the peak within the budget)',
    )
    .option('--cost <preset>', 'cost preset: alpha-beta, nccl, dtensor, autoparallel', 'alpha-beta')
    .option('--calibration <file>', 'measured kernels of the device, written by bench/calibrate.py')
    .option('--solver <name>', 'auto, exact, highs, javascript-lp-solver, propagate', 'auto')
    .option('--gap <fraction>', 'relative gap that is good enough; above it the exit code is 4', '0')
    .option('--time-limit <seconds>', 'stop the solver after this long')
    .option('--seed <n>', 'seed handed to the library solvers; our own engine has nothing random', '0')
    .option('--uneven <policy>', 'whether a dim may be cut into unequal pieces: allow, forbid', 'allow')
    .option('--cut <placement>', 'a further kind of cut to offer, such as "_S(0, 3)"; repeatable', collect, [])
    .option('--unknown <policy>', 'operators without a record: refuse, replicate', 'refuse')
    .option('--no-sharing', 'price a redistribution at every use, even where one copy would serve several')
    .option('--no-recipes', 'leave out the comparison with the plain recipes')
    .option('--program', 'also print the program, each line with its placement')
    .option('--emit-ilp <file>', 'write the integer program in LP format')
    .option('-o, --output <dir>', 'write a plan folder')
    .option('--quiet', 'no progress on stderr');
}
