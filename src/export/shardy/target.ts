/**
 * `--target shardy` and `--target gspmd` write the whole program as StableHLO, with the placements
 * of the plan as shardings of inputs and results and as constraints where a value is redistributed;
 * XLA's partitioner inserts the collectives. The files are `program.mlir` and `shardings.json`.
 */
import { lossLines } from '../../backend/loss-lines.ts';
import { headLines } from '../../backend/python-text.ts';
import type { ExportLoss, ExportResult, ExportSource, ExportTarget } from '../../backend/target.ts';
import { ShardwrightError } from '../../errors.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import { parseSharding } from '../../mesh/sharding/parse.ts';
import type { Sharding } from '../../mesh/sharding/sharding.ts';
import { planConstraints, type ShardingText } from '../hlo/constraints.ts';
import { hloProgram } from '../hlo/program.ts';
import {
  inputShardings,
  outputShardings,
  readJaxShardings,
  replacedInputs,
  shardingsJson,
  type SpecOf,
} from '../jax/shardings.ts';
import { gspmdText, shardyText } from './shardings.ts';
import { mlirString, moduleText } from './text.ts';

interface Notation {
  readonly name: 'shardy' | 'gspmd';
  readonly header: (mesh: DeviceMesh) => string[];
  readonly text: typeof shardyText;
  /** Attribute of an input or a result. */
  readonly attribute: (sharding: string) => string;
  readonly constraint: (operand: string, sharding: string, type: string) => string;
}

const NOTATIONS: readonly Notation[] = [
  {
    name: 'shardy',
    header: (mesh) => {
      const axes = mesh.names.map((name, m) => `${mlirString(name)}=${mesh.sizes[m]}`);
      return [`  sdy.mesh @mesh = <[${axes.join(', ')}]${order(mesh)}>`];
    },
    text: shardyText,
    attribute: (sharding) => `sdy.sharding = #sdy.sharding${sharding}`,
    constraint: (operand, sharding, type) =>
      `sdy.sharding_constraint ${operand} ${sharding} : ${type}`,
  },
  {
    name: 'gspmd',
    header: () => [],
    text: gspmdText,
    attribute: (sharding) => `mhlo.sharding = ${mlirString(sharding)}`,
    constraint: (operand, sharding, type) =>
      `stablehlo.custom_call @Sharding(${operand}) {backend_config = "", mhlo.sharding = ` +
      `${mlirString(sharding)}} : (${type}) -> ${type}`,
  },
];

function order({ devices }: DeviceMesh): string {
  return devices.every((id, rank) => id === rank) ? '' : `, device_ids=[${devices.join(', ')}]`;
}

function write(notation: Notation, source: ExportSource): ExportResult {
  const { mesh, table } = source;
  const inputs = inputShardings(source);
  const outputs = outputShardings(source);
  const losses: ExportLoss[] = [...inputs, ...outputs].flatMap(({ loss }) =>
    loss === undefined ? [] : [loss],
  );
  const textOf = (sharding: Sharding, shape: readonly number[]): ShardingText =>
    notation.text(sharding, mesh, shape);
  const points = planConstraints(source, textOf);
  const program = hloProgram(points.program, table, {
    loops: 'while',
    constraints: points.constraints,
  });
  const attribute = ({ spec, placement, shape, loss }: SpecOf): string => {
    if (spec === 'None' || loss !== undefined) return '';
    const text = textOf(parseSharding(placement, mesh, { kinds: table.kinds }), shape);
    return 'refused' in text ? '' : notation.attribute(text.text);
  };
  const replaced = aliases(source);
  const text = moduleText(program, {
    name: source.program.name,
    partitions: mesh.size,
    header: notation.header(mesh),
    inputs: inputs.map((input, k) => listed(attribute(input), replaced.get(k))),
    outputs: outputs.map(attribute),
    constraint: notation.constraint,
  });
  const head = [...headLines(source, notation.name), ...lossLines(losses)];
  const left = points.unsaid();
  const notes =
    left === 0 ? [] : [`${left} uses of pending sums carry no constraint: XLA chooses there.`];
  return {
    files: [
      {
        name: 'program.mlir',
        text: [...head, ...notes].map((line) => `// ${line}\n`).join('') + text,
      },
      { name: 'shardings.json', text: shardingsJson(mesh, inputs, outputs) },
    ],
    losses,
    notes: [...notes, 'XLA puts the collectives: it may choose others than those of the plan.'],
  };
}

/** The outputs that replace inputs, by the place of the input: the memory of those is theirs. */
function aliases({ program }: ExportSource): ReadonlyMap<number, string> {
  let returned = 0;
  const replaced = new Map<number, string>();
  const inputOf = replacedInputs(program);
  program.outputs.forEach(({ value }, k) => {
    if (value === null) return;
    const at = inputOf[k];
    if (at !== undefined && !replaced.has(at))
      replaced.set(at, `tf.aliasing_output = ${returned} : i32`);
    returned++;
  });
  return replaced;
}

/** The entries of a dictionary. */
function listed(...entries: readonly (string | undefined)[]): string {
  return entries.filter((entry) => entry !== undefined && entry !== '').join(', ');
}

function targetOf(notation: Notation): ExportTarget {
  const what = notation.name === 'shardy' ? 'sdy.sharding' : 'mhlo.sharding';
  return {
    name: notation.name,
    summary:
      `StableHLO with ${what} on inputs, results and redistributed values; XLA puts the ` +
      'collectives',
    triedWith: ['jax 0.10.2'],
    write: (source) => write(notation, source),
    readBack: readJaxShardings,
  };
}

function named(name: Notation['name']): Notation {
  const found = NOTATIONS.find((notation) => notation.name === name);
  if (found === undefined)
    throw new ShardwrightError('E_INTERNAL', `internal: no notation ${name}`);
  return found;
}

export const shardyTarget: ExportTarget = targetOf(named('shardy'));
export const gspmdTarget: ExportTarget = targetOf(named('gspmd'));
