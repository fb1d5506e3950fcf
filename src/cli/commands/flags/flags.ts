/** Flags that several commands share, with their help texts. */

import { Option, type Command } from 'commander';

/** Flags that several commands have, in the same words: `.option(...FLAG.json)`. */
export const FLAG = {
  json: ['--json', 'print exactly one JSON value'],
  quiet: ['--quiet', 'no progress on stderr'],
  cluster: ['--cluster <name>', 'node design such as dgx-h100, or a JSON file'],
  memory: ['--memory <size>', 'budget per device, such as 60GiB (default: the usable memory of the device)'],
  optimizer: [
    '--optimizer <name>',
    'none, sgd, adam, adamw-mixed (default: adamw-mixed for 16-bit weights, adam for float32)',
  ],
  calibration: ['--calibration <file>', 'measured kernels of the device, written by bench/calibrate.py'],
  collectives: [
    '--collectives <file>',
    'measured collectives of the cluster: a table `Group Size Collective 1MB 2MB ...`, a line of dashes, rows of milliseconds such as `intra 8 all_reduce 0.05 0.08`',
  ],
  timeLimit: [
    '--time-limit <seconds>',
    'answer with the best that is found in this time, which counts from the start of the process, reading included; half a second later it ends where there is nothing. The answer is then still priced again and proven, which takes up to an eighth of the time before the search, and up to 10 s more where it is not known whether anything fits',
  ],
  unknown: ['--unknown <policy>', 'operators without a record: refuse, replicate', 'refuse'],
  cost: ['--cost <preset>', 'cost preset: alpha-beta, nccl, dtensor, autoparallel', 'alpha-beta'],
} as const;

/** For options that may stand several times. */
export const collect = (value: string, list: string[]): string[] => [...list, value];

/** Flags of every command that reads a model. */
export function modelFlags(command: Command): Command {
  return command
    .option('--format <name>', 'format of the file, instead of detecting it')
    .option(
      '--role <NAME=role>',
      'correct the role of an input (parameter, buffer, input ...); repeatable',
      collect,
      [],
    )
    .option('--tie <a=b>', 'two parameters are one tensor; repeatable', collect, [])
    .option('--train-step', 'the first outputs are the new values of the first inputs and take their placements')
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
    .option('--ignore-shardings', 'leave free what the model file says of shardings (default: plan pins it)')
    .option('--select <title>', 'which graph of a log, "Joint graph 0"')
    .option('--size <NAME=n>', 'value of a size that the model leaves open, s77=64; repeatable', collect, [])
    .option(...FLAG.json);
}

/** Sizes of what is built from a config; graph files have theirs in them. */
export function sizeFlags(command: Command): Command {
  return command
    .option('--batch <n>', 'sequences at once, of a model name or config (default: 8)')
    .option('--seq <n>', 'tokens of a sequence, of a model name or config (default: 2048, or what the positions allow)')
    .option('--dtype <name>', 'element type, of a model name or config (default: what the config states, else bf16)')
    .option('--layers <n>', 'layers, of a model name or config (default: what the config states)')
    .option('--training', 'loss and gradients of a model name or config (default: the forward pass only)')
    .option(
      '--pad-vocab <n>',
      'pad the vocabulary of a model name or config to a multiple of n times the size of the mesh dim tp, as Megatron-LM does, such as 128; padding is counted apart (default: 1, none)',
    );
}

/** What dims of inputs are, where recipes ask. */
export const INPUT_DIMS = {
  batch: [
    '--batch-dim <NAME=D>',
    'batch dim of an input and all that share its index, for recipes (default: as the program tells); repeatable',
  ],
  sequence: [
    '--sequence-dim <NAME=D>',
    'sequence dim of an input, for recipes (default: as the program tells); repeatable',
  ],
} as const satisfies Record<string, readonly [string, string]>;

/** Flags of every command that plans. */
export function planFlags(command: Command): Command {
  return command
    .option(...INPUT_DIMS.batch, collect, [])
    .option(...INPUT_DIMS.sequence, collect, [])
    .option(...FLAG.memory)
    .option(
      '--pin <NODE=SPEC>',
      'fix the placement of a node or parameter, such as lm_head.weight=S(0)R, w=a b -> a8 b 8 or w=P("dp", None); repeatable',
      collect,
      [],
    )
    .option('--inputs <SPEC>', 'one placement for all inputs, or free', 'free')
    .option('--outputs <SPEC>', 'one placement for all outputs, or free', 'free')
    .option(...FLAG.optimizer)
    .addOption(new Option('--objective <name>', 'what is least').choices(['time', 'parameter-memory']).default('time'))
    .addOption(
      new Option('--maps <how>', 'cut the tensors in the bodies of maps, or share out their rows').choices([
        'bodies',
        'rows',
      ]),
    )
    .option(
      '--activations <how>',
      'memory of activations: report (compute it, the default), constraint (limit peak memory to the budget), off',
    )
    .option(
      '--checkpoint <policy>',
      'recompute forward nodes in the backward pass: none (default), full, selective, a share from 0 to 1, two-stage (chosen after the placements) or auto (chosen with them); both limit peak memory to the budget',
    )
    .option(...FLAG.cost)
    .option(...FLAG.calibration)
    .option(...FLAG.collectives)
    .option('--solver <name>', 'auto, exact, highs, javascript-lp-solver, propagate', 'auto')
    .option(
      '--gap <fraction>',
      'relative gap that is good enough; above it the exit code is 4 (default: 0; 1% where the budget limits peak memory)',
    )
    .option(...FLAG.timeLimit)
    .option('--seed <n>', 'seed handed to the library solvers; our own engine has nothing random', '0')
    .option('--uneven <policy>', 'whether a dim may be cut into unequal pieces: allow, forbid', 'allow')
    .option('--cut <placement>', 'a further kind of cut to offer, such as "_S(0, 3)"; repeatable', collect, [])
    .option(
      '--strided <which>',
      'strided cuts of dims that views merge, such as batch and sequence: rows (the leading dims), all, off (default: rows on meshes of up to three dims)',
    )
    .option(...FLAG.unknown)
    .option('--no-sharing', 'price a redistribution at every use, even where one copy would serve several')
    .option('--no-recipes', 'leave out the comparison with the recipes')
    .option('--program', 'also print the program, each line with its placement')
    .option('--emit-ilp <file>', 'write the integer program in LP format')
    .option('-o, --output <dir>', 'write a plan folder')
    .option(...FLAG.quiet);
}
