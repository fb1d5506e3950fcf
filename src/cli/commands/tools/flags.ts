/** The flags of `einshard`, `einsum`, `solve`, `draw`, `layout`, `redistribute` and `validate`. */

import { ShardwrightError, suggestion } from '../../../errors.ts';
import { DTYPES } from '../../../graph/types.ts';
import { type Given, list, off, on, or, required, text, value } from '../../input/flags/flag.ts';
import { oneOf, parseCount, parseFraction, parseShape } from '../../input/flags/read.ts';
import {
  CLUSTER,
  DEVICES,
  EXPLAIN_SOLVER,
  JSON_FLAG,
  MESH,
  PRICES,
  QUIET,
  TIME_LIMIT,
} from '../../input/flags/shared-flags.ts';

export const EINSHARD_COMMAND = {
  shape: value('--shape <sizes>', 'global shape of the tensor, such as 4,8', parseShape),
  devices: DEVICES,
  draw: on('--draw', 'also draw the devices of every block'),
  program: value(
    '--program <file>',
    'JSON file with devices, tensors and einsum steps: their placements and collectives',
    text,
  ),
  ...JSON_FLAG,
};
export type EinshardOptions = Given<typeof EINSHARD_COMMAND>;

export const EINSUM_COMMAND = {
  shard: list('--shard <operand=states>', 'sharding of an operand, such as x=S(b)', text),
  axis: list('--axis <dims>', 'mesh dims, outermost first, such as tp=8', text),
  mode: or(
    value(
      '--mode <mode>',
      'auto casts, slices and redistributes operands, and says so; strict refuses all of these',
      oneOf(['auto', 'strict']),
    ),
    'auto',
  ),
  ...JSON_FLAG,
};
export type EinsumOptions = Given<typeof EINSUM_COMMAND>;

export const SOLVE_COMMAND = {
  timeLimit: {
    ...TIME_LIMIT.timeLimit,
    help: 'answer with the best choice found in this time, counted from the start of the process',
  },
  gap: or(
    value(
      '--gap <fraction>',
      'relative gap that is good enough; above it the exit code is 4',
      parseFraction,
    ),
    '0',
  ),
  seed: or(value('--seed <n>', 'seed of the search', parseCount), '0'),
  threads: or(
    value(
      '--threads <n>',
      'worker threads; the answer to a number of rounds does not depend on it',
      parseCount,
    ),
    '2',
  ),
  lanes: value(
    '--lanes <n>',
    'searches that run side by side; more of them use more threads, and change the answer ' +
      '(default: 2)',
    parseCount,
  ),
  rounds: value(
    '--rounds <n>',
    'stop after this many rounds of search, a limit that gives the same choice on every machine; ' +
      'closing the gap then takes about as long again, at least 30 s',
    parseCount,
  ),
  certificate: value('--certificate <file>', 'write the certificate of the bound', text),
  check: value(
    '--check <file>',
    'replay a certificate instead of solving: what it proves; exit 5 where it proves nothing',
    text,
  ),
  ...JSON_FLAG,
  ...EXPLAIN_SOLVER,
  ...QUIET,
};
export type SolveOptions = Given<typeof SOLVE_COMMAND>;

const ORDER = oneOf(
  ['lex', 'colex'],
  'colex: the first coordinate is the fastest (CuTe); lex: the last is (PyTorch, device meshes)',
);

export const DRAW_COMMAND = {
  shape: value(
    '--shape <sizes>',
    'sizes of the dims, outermost first, such as 2,2,2,2 (default: the modes of the layout)',
    parseShape,
  ),
  cut: value(
    '--cut <dims>',
    'dims whose borders are drawn: before every slice, or before one as in 0,1@2',
    text,
  ),
  layout: value(
    '--layout <layout>',
    'show the offsets of a layout, such as (4,2):(2,1); needs --order',
    text,
  ),
  order: value(
    '--order <order>',
    'which coordinate is the fastest: lex (the last) or colex (the first)',
    ORDER,
  ),
  placement: value(
    '--placement <spec>',
    'show who holds each element: S(0)R, P("tp", None), or einshard text',
    text,
  ),
  mesh: value(
    '--mesh <dims>',
    'mesh of the placement, outermost dim first, such as dp=2,tp=2',
    text,
  ),
  devices: { ...DEVICES, help: 'number of devices, for einshard text without --mesh' },
  borders: off('--no-borders', 'draw no lines at shard borders'),
  svg: value('--svg <file>', 'also write the drawing as SVG', text),
  ...JSON_FLAG,
};
export type DrawOptions = Given<typeof DRAW_COMMAND>;

export const LAYOUT_COMMAND = {
  order: value(
    '--order <order>',
    'which coordinate is the fastest: lex (the last) or colex (the first); no default',
    ORDER,
  ),
  ...JSON_FLAG,
};
export type LayoutOptions = Given<typeof LAYOUT_COMMAND>;

export const REDISTRIBUTE_COMMAND = {
  mesh: required({ ...MESH, help: 'mesh dims, outermost first, such as dp=2,tp=2' }),
  shape: required(value('--shape <sizes>', 'global shape of the tensor, such as 8,8', parseShape)),
  dtype: or(
    value('--dtype <name>', 'element type, such as f32 or bf16', (name, flag) => {
      const dtype = DTYPES.find((known) => known === name);
      if (dtype !== undefined) return dtype;
      throw new ShardwrightError('E_USAGE', `${flag} '${name}' is not an element type`, {
        hint: suggestion(name, DTYPES, 'element types'),
      });
    }),
    'f32',
  ),
  cost: PRICES.cost,
  cluster: or(CLUSTER, 'dgx-h100'),
  collectives: PRICES.collectives,
  merge: off('--no-merge', 'one mesh dim at a time, as DTensor does'),
  ...JSON_FLAG,
};
export type RedistributeOptions = Given<typeof REDISTRIBUTE_COMMAND>;

export const VALIDATE_COMMAND = {
  groups: on('--groups', 'also print every group of comparable runs'),
  rows: value('--rows <file>', 'also write the result of every row as CSV', text),
  ...JSON_FLAG,
};
export type ValidateOptions = Given<typeof VALIDATE_COMMAND>;
