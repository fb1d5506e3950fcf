/**
 * `--target torch` writes the lowered program of a plan for PyTorch: `program.py`, the placements
 * of all inputs and outputs, and the communication. Nothing is lost.
 */
import { headLines, pyComment } from '../../backend/python-text.ts';
import type {
  ExportFile,
  ExportResult,
  ExportSource,
  ExportTarget,
  OrderOptions,
  ReadPlacements,
} from '../../backend/target.ts';
import { ShardwrightError } from '../../errors.ts';
import { checkFiles } from './check.ts';
import { chooseOrder, type ProgramOrder, splitInOrder } from './order.ts';
import { bucketNotes, collectiveList } from './program/collective-list.ts';
import { programText } from './program/program-text.ts';
import type { SplitProgram } from './program/split.ts';
import { type PlacementTable, placementTable } from './tables.ts';

export const torchTarget: ExportTarget = {
  name: 'torch',
  summary:
    'the per-device program in PyTorch: forward and backward with functional collectives; ' +
    'what parallelize() runs',
  triedWith: ['torch 2.13'],
  write,
  ordered: true,
  check: (source, options) => {
    const { order } = chooseOrder(source, options);
    return checkFiles(source, (small) => filesOf(small, splitInOrder(small.lowered(), order)));
  },
  readBack,
};

function write(source: ExportSource, options?: OrderOptions): ExportResult {
  const chosen = chooseOrder(source, options);
  const split = splitInOrder(source.lowered(), chosen.order);
  return {
    files: filesOf(source, split, chosen),
    losses: [],
    notes: [chosen.note, ...bucketNotes(source.lowered(), split)],
  };
}

/**
 * @param chosen absent of a program at small sizes, which has the order of the whole one and prices
 *   of its own
 */
function filesOf(source: ExportSource, split: SplitProgram, chosen?: ProgramOrder): ExportFile[] {
  const program = source.lowered();
  const table = placementTable(program, split, source.plan, source.planHash);
  const list = collectiveList(program, split, source.planHash, chosen);
  const head = [
    ...headLines(source, 'torch'),
    ...(chosen === undefined ? [] : [chosen.note, ...bucketNotes(program, split)].map(pyComment)),
  ];
  return [
    { name: 'program.py', text: programText(program, split, head) },
    { name: 'placements.json', text: `${JSON.stringify(table, null, 1)}\n` },
    { name: 'collectives.json', text: `${JSON.stringify(list, null, 1)}\n` },
  ];
}

/** Placements of parameters as `placements.json` states them. */
function readBack(files: readonly ExportFile[]): ReadPlacements {
  const file = files.find(({ name }) => name === 'placements.json');
  if (file === undefined) throw new ShardwrightError('E_SYNTAX', 'there is no placements.json');
  const { primals } = JSON.parse(file.text) as PlacementTable;
  return {
    parameters: new Map(
      primals.flatMap(({ role, of, placement }) =>
        role === 'parameter' && of !== undefined ? [[of, placement]] : [],
      ),
    ),
  };
}
