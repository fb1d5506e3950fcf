/**
 * `--target jax` writes the per-device program of a plan for `jax.shard_map`: `program.py` (the
 * program of each device, and the shardings of inputs and outputs), `reference.py` (the program
 * before it was cut), `constrained.py` (the same with the PartitionSpecs of the plan on its values,
 * whose collectives XLA chooses), `shardings.json`, `collectives.json` and `check.py`, which runs
 * and compares them. Source: JAX 0.10, `jax.shard_map`, `jax.lax`,
 * `jax.lax.with_sharding_constraint`.
 */
import { lossLines } from '../../backend/loss-lines.ts';
import { headLines, pyList, pyString, pyTuple } from '../../backend/python-text.ts';
import type {
  ExportFile,
  ExportLoss,
  ExportResult,
  ExportSource,
  ExportTarget,
} from '../../backend/target.ts';
import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import type { DType, Graph } from '../../graph/types.ts';
import { collectiveKind, readCollective } from '../../lower/program/collectives.ts';
import type { DeviceProgram } from '../../lower/program/program.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import { packageData } from '../../platform/platform.ts';
import { planConstraints } from '../hlo/constraints.ts';
import { type HloProgram, hloProgram } from '../hlo/program.ts';
import { jaxTypeName, writtenKind } from './expressions.ts';
import { jaxFunction } from './function.ts';
import { rules } from './rules.ts';
import {
  constraintText,
  inputShardings,
  outputShardings,
  readJaxShardings,
  replacedInputs,
  shardingsJson,
  type SpecOf,
} from './shardings.ts';

const IMPORTS = [
  'import jax',
  'import jax.numpy as jnp',
  'import numpy as np',
  'from jax import lax',
];

/** The programs of a plan, each with its text as a function. */
interface Programs {
  readonly device: HloProgram;
  readonly deviceLines: readonly string[];
  readonly reference: HloProgram;
  readonly referenceLines: readonly string[];
  readonly constrainedLines: readonly string[];
}

function write(source: ExportSource): ExportResult {
  const { mesh } = source;
  const inputs = inputShardings(source);
  const outputs = outputShardings(source);
  const losses: ExportLoss[] = [...inputs, ...outputs].flatMap(({ loss }) =>
    loss === undefined ? [] : [loss],
  );
  const made = losses.length > 0 ? undefined : programsOf(source, losses);
  const head = [...headLines(source, 'jax'), ...lossLines(losses)].map((line) => `# ${line}`);
  const shardings = { name: 'shardings.json', text: shardingsJson(mesh, inputs, outputs) };
  if (made === undefined) return { files: [shardings], losses };
  const files: ExportFile[] = [
    { name: 'program.py', text: programText(source, made, inputs, outputs, head) },
    { name: 'reference.py', text: referenceText(made, head) },
    { name: 'constrained.py', text: constrainedText(made, head) },
    shardings,
    { name: 'collectives.json', text: collectivesJson(source, made.device.unread) },
    { name: 'check.py', text: packageData('export/jax-check.py') },
  ];
  return { files, losses };
}

/**
 * The programs; undefined, with a loss, where JAX has no text for a call, or where ranks hold
 * different numbers of rows: what remains are the shardings of inputs and outputs.
 */
function programsOf(source: ExportSource, losses: ExportLoss[]): Programs | undefined {
  try {
    return writtenPrograms(source);
  } catch (error) {
    if (!(error instanceof ShardwrightError)) throw error;
    const instead = NO_PROGRAM.get(error.code);
    if (instead === undefined) throw error;
    const item = error.details.node ?? source.program.name;
    losses.push({ item, planned: error.message, instead });
    return undefined;
  }
}

const NO_PROGRAM: ReadonlyMap<string, string> = new Map([
  [
    'E_EXPORT_UNEVEN',
    'all devices of a JAX program hold equally many rows, so shardings.json is written alone',
  ],
  [
    'E_UNSUPPORTED',
    'no program is written; shardings.json, which is, has the PartitionSpecs of the plan for ' +
      'jax.jit of your own function',
  ],
]);

function writtenPrograms(source: ExportSource): Programs {
  const { graph, symbols, mesh } = source.lowered();
  const names = mesh.names.map(pyString);
  const device = hloProgram(graph, source.table, { symbols, mesh });
  const reference = hloProgram(source.program, source.table);
  const points = planConstraints(source, (sharding, shape) =>
    constraintText(sharding, source.mesh, shape),
  );
  const constrained = hloProgram(points.program, source.table, {
    constraints: points.constraints,
  });
  return {
    device,
    deviceLines: jaxFunction(
      'device_program',
      'What each device runs: its own part of every input in, its own part of every output out.',
      device,
      names.length === 1 ? names[0] : pyTuple(names),
    ).lines,
    reference,
    referenceLines: jaxFunction(
      'reference',
      'The program before it was cut: global arrays in, global arrays out.',
      reference,
      '()',
    ).lines,
    constrainedLines: jaxFunction(
      'constrained',
      'The program before it was cut, with the PartitionSpecs of the plan on its values.',
      constrained,
      '()',
    ).lines,
  };
}

function isWide(program: HloProgram): boolean {
  const wide = new Set<DType>(['f64', 'i64', 'u64', 'c128']);
  const found = (code: HloProgram['code']): boolean =>
    code.some(
      (i) =>
        [...i.inputs, ...i.outputs].some((v) => wide.has(v.dtype)) ||
        i.bodies.some((b) => found(b.code)),
    );
  return program.inputs.some(({ value }) => wide.has(value.dtype)) || found(program.code);
}

function inputLines(program: HloProgram, inputs: readonly SpecOf[]): string[] {
  return program.inputs.map(({ value }, k) => {
    const shape = pyTuple(value.shape.map(String));
    return `    (${pyString(inputs[k].name)}, ${shape}, ${pyString(jaxTypeName(value.dtype))}),`;
  });
}

function programText(
  source: ExportSource,
  { device, deviceLines, reference }: Programs,
  inputs: readonly SpecOf[],
  outputs: readonly SpecOf[],
  head: readonly string[],
): string {
  const { mesh } = source;
  const names = mesh.names.map(pyString);
  const ruleLines = rules(inputs).map(
    ({ pattern, spec }) => `    (${pyString(pattern)}, ${spec}),`,
  );
  return [
    ...head,
    ...IMPORTS,
    'from jax.sharding import AxisType, Mesh, NamedSharding',
    'from jax.sharding import PartitionSpec as P',
    '',
    `MESH_SHAPE = ${pyTuple(mesh.sizes.map(String))}`,
    `MESH_NAMES = ${pyTuple(names)}`,
    '',
    '# Name, global shape and type of every input.',
    'INPUTS = [',
    ...inputLines(reference, inputs),
    ']',
    'IN_SPECS = (',
    ...inputs.map(({ spec }) => `    ${spec},`),
    ')',
    'OUT_SPECS = (',
    ...outputs.map(({ spec }) => `    ${spec},`),
    ')',
    '# Inputs that the step replaces.',
    `DONATED = ${pyTuple(donated(source.program).map(String))}`,
    '# The first pattern that is found in the name of an input says how that is cut.',
    'RULES = [',
    ...ruleLines,
    ']',
    '',
    '',
    ...wideLines(device),
    ...deviceLines,
    '',
    '',
    shardedText(mesh),
  ].join('\n');
}

/** The decorator of a program that computes with 64-bit types, and its use. */
function wideLines(program: HloProgram): string[] {
  if (!isWide(program)) return [];
  const text = packageData('export/jax-sharded.py');
  const decorator = text.slice(text.indexOf('def wide'), text.indexOf('def device_program'));
  return [...decorator.split('\n').slice(0, -1), '@wide'];
}

/** Places of the inputs that outputs replace: with a plan those lie as their new values do. */
function donated(program: Graph): number[] {
  const places = replacedInputs(program).filter((at) => at !== undefined);
  return [...new Set(places)].sort((a, b) => a - b);
}

/** The functions that make the mesh and run the program over it. */
function shardedText(mesh: DeviceMesh): string {
  const text = packageData('export/jax-sharded.py');
  const order = mesh.devices.every((id, rank) => id === rank)
    ? ''
    : `[${pyList(mesh.devices.map(String))}]`;
  return text
    .slice(text.indexOf('def make_mesh'))
    .replace('[:DEVICES]', `[: ${mesh.size}]${order}`);
}

function referenceText({ reference, referenceLines }: Programs, head: readonly string[]): string {
  return [...head, ...IMPORTS, '', '', ...wideLines(reference), ...referenceLines, ''].join('\n');
}

function constrainedText(
  { reference, constrainedLines }: Programs,
  head: readonly string[],
): string {
  const text = packageData('export/jax-constrained.py');
  return [
    ...head,
    ...IMPORTS,
    'import program',
    'from jax.sharding import NamedSharding',
    'from jax.sharding import PartitionSpec as P',
    '',
    '',
    ...wideLines(reference),
    ...constrainedLines,
    '',
    '',
    text.slice(text.indexOf('def partitioned')),
  ].join('\n');
}

interface CollectiveRecord {
  readonly kind: string;
  readonly meshDims: readonly string[];
  /** Name of the value that it gives. */
  readonly value: string;
  /** The collective of JAX that does it, where it is another one. */
  readonly as?: string;
  /** Nothing reads the value, so the program does not make it. */
  readonly unread?: true;
}

/** Collectives are in program order; those of a loop are listed once, as in the compiled text. */
function collectivesJson({ plan, lowered }: ExportSource, unread: ReadonlySet<string>): string {
  const { graph, mesh } = lowered();
  const list: CollectiveRecord[] = [];
  const walk = (of: DeviceProgram['graph']): void => {
    for (const node of of.nodes) {
      const kind = collectiveKind(node.target);
      if (kind === undefined) continue;
      const { meshDims, op } = readCollective(mesh, node.target, node.args);
      const as = writtenKind(kind, op);
      list.push({
        kind,
        meshDims: meshDims.map((m) => mesh.names[m]),
        value: node.name,
        ...(as === kind ? {} : { as }),
        ...(unread.has(node.name) ? { unread: true } : {}),
      });
    }
    for (const body of Object.values(of.subgraphs)) walk(body);
  };
  walk(graph);
  const peakBytes = plan.memory?.peakBytes;
  const record = { mesh: mesh.text, ...defined({ peakBytes }), collectives: list };
  return `${JSON.stringify(record, null, 1)}\n`;
}

export const jaxTarget: ExportTarget = {
  name: 'jax',
  summary: 'a jax.shard_map program with the collectives of the plan, and its PartitionSpecs',
  triedWith: ['jax 0.10.2'],
  write,
  readBack: readJaxShardings,
};
