/**
 * Registers `einshard`, `einsum`, `solve`, `draw`, `layout`, `redistribute` and `validate` with the
 * command line. Each loads its code when it runs.
 */

import { command } from '../flags/add-command.ts';
import {
  DRAW_COMMAND,
  EINSHARD_COMMAND,
  EINSUM_COMMAND,
  LAYOUT_COMMAND,
  REDISTRIBUTE_COMMAND,
  SOLVE_COMMAND,
  VALIDATE_COMMAND,
} from './flags.ts';

export const registerEinshard = command({
  usage: 'einshard [expression]',
  summary: 'what an einshard expression means: mesh, placements, blocks',
  description:
    'Reads a placement in einshard notation and prints the devices that hold each block of ' +
    "the tensor.\n\nExample:\n  $ shardwright einshard 'a b -> 2 a2* b*' --shape 4,8 " +
    '--devices 16 --draw',
  flags: EINSHARD_COMMAND,
  run: async (options, { io }, expression?: string) =>
    (await import('./einshard.ts')).einshardCommand(expression, options, io),
});

export const registerEinsum = command({
  usage: 'einsum <equation>',
  summary: 'letters of an einsum, its sharding, what its gradients owe',
  description:
    'Sorts the letters of an einsum into batch, free and contraction. Prints the sharding of ' +
    'the result for sharded operands, and the reductions that each gradient needs. Operands ' +
    'are x, y, z (or 0, 1, 2 and on); one that is not named is R, equal on all devices. ' +
    'States are S(b) or S(1) for a cut, R, I (equal and computed once) and P (addends), one ' +
    "for each mesh dim.\n\nExamples:\n  $ shardwright einsum 'abi,aoi->abo' --shard 'x=S(b)' " +
    "--axis tp=8\n  $ shardwright einsum 'bh,ho->bo' --shard 'x=S(b)R' --shard 'y=IS(o)' " +
    '--axis dp=2,tp=4 --mode strict',
  flags: EINSUM_COMMAND,
  run: async (options, { io }, equation: string) =>
    (await import('./einsum.ts')).einsumCommand(equation, options, io),
});

export const registerSolve = command({
  usage: 'solve <problem>',
  summary: 'the cheapest choice of an IOPDDL problem, with bound and certificate',
  description:
    'Solves a choice problem with usage over time (google/iopddl; JSON or gzipped JSON; `-` ' +
    'reads stdin).\n\nExample:\n  $ shardwright solve problem.json.gz --time-limit 60',
  flags: SOLVE_COMMAND,
  run: async (options, { io, control }, path: string) =>
    (await import('./solve.ts')).solveCommand(path, options, io, control),
});

export const registerDraw = command({
  usage: 'draw',
  summary: 'a tensor, a layout or a placement as a matrix of matrices',
  description:
    'Draws a tensor of any rank as a matrix of matrices: its values, the offsets of a ' +
    'layout, or the devices of a placement with lines at shard borders.\n\nExamples:\n  $ ' +
    'shardwright draw --shape 2,2,2,2 --cut 0,1\n  $ shardwright draw --layout ' +
    "'((2,2),2):((2,4),1)' --order lex\n  $ shardwright draw --shape 4,4 --mesh dp=2,tp=2 " +
    "--placement 'S(0)S(1)' --svg picture.svg",
  flags: DRAW_COMMAND,
  run: async (options, { io }) => (await import('./draw.ts')).drawCommand(options, io),
});

export const registerLayout = command({
  usage: 'layout <expression>',
  summary: 'layout algebra: coalesce, compose, complement, divide, product, inverse',
  description:
    'Evaluates one function of the layout algebra (CuTe) and prints the resulting ' +
    'layout.\n\nFunctions: show, flatten, coalesce, coalesce_modes, compose, complement, ' +
    'right_inverse, left_inverse; in colex order also logical_divide, zipped_divide, ' +
    'tiled_divide, flat_divide, logical_product, zipped_product, tiled_product, ' +
    'flat_product, blocked_product, raked_product.\n\nArguments: layouts SHAPE:STRIDE, ' +
    'compact in the order without strides; complement takes a bound second. The second ' +
    'argument of compose, divides and products may go by mode: <3:4,8:2>, _ for a mode left ' +
    'alone, or a bare shape (3,8), whose sizes have stride 1.\n\nExamples:\n  $ shardwright ' +
    "layout 'compose (6,2):(8,2) (4,3):(3,1)' --order colex\n  $ shardwright layout " +
    "'zipped_divide (4,4):(1,4) <2:1,2:2>' --order colex --json",
  flags: LAYOUT_COMMAND,
  run: async (options, { io }, expression: string) =>
    (await import('./layout.ts')).layoutCommand(expression, options, io),
});

export const registerRedistribute = command({
  usage: 'redistribute <from> <to>',
  summary: 'the cheapest way from one placement of a tensor to another',
  description:
    'Plans how a tensor gets from one placement to another, with its collectives, their ' +
    "bytes and seconds.\n\nExample:\n  $ shardwright redistribute 'S(0)S(1)' 'S(1)S(0)' " +
    '--mesh dp=2,tp=2 --shape 4096,4096 --dtype bf16',
  flags: REDISTRIBUTE_COMMAND,
  run: async (options, { io }, from: string, to: string) =>
    (await import('./redistribute.ts')).redistributeCommand(from, to, options, io),
});

export const registerValidate = command({
  usage: 'validate <runs.csv>',
  summary: 'predicted against measured training runs: rank, regret, error, memory',
  description:
    'Prices every training run of a table as compare --layout prices its layout, and ' +
    'compares with the measured time. About half a second a run; runs of one model share ' +
    'work. The column hf_id names the model, such as openai/gpt-oss-20b; without it one of the ' +
    'same dimensions is priced. The columns framework, framework_version, head_dim, ' +
    'grad_accum, mtp, dispatcher, gradient_bytes and blocking_launches state the software; ' +
    'where they are missing, the layout decides, and the output says so.\n\nExample:\n  ' +
    '$ shardwright validate ' +
    'measured_runs.csv --groups',
  flags: VALIDATE_COMMAND,
  run: async (options, { io }, path: string) =>
    (await import('./validate.ts')).validateCommand(path, options, io),
});
