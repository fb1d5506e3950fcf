/**
 * `--target jax` writes the per-device program of a plan for `jax.shard_map`: `program.py` (the
 * program of each device, and the shardings of inputs and outputs), `reference.py` (the program
 * before it was cut), `shardings.json`, `collectives.json` and `check.py`, which runs both and
 * compares them. Source: JAX 0.10, `jax.shard_map`, `jax.lax`.
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
import { ShardwrightError } from '../../errors.ts';
import { ownersOfOutputs } from '../../graph/carried.ts';
import type { DType, Graph, Output } from '../../graph/types.ts';
import { collectiveKind, readCollective } from '../../lower/program/collectives.ts';
import type { DeviceProgram } from '../../lower/program/program.ts';
import type { DeviceMesh } from '../../mesh/devices/mesh.ts';
import { packageData } from '../../platform/platform.ts';
import { type HloProgram, hloProgram } from '../hlo/program.ts';
import { jaxTypeName, writtenKind } from './expressions.ts';
import { jaxFunction } from './function.ts';
import { rules } from './rules.ts';
import {
  inputShardings,
  outputShardings,
  readJaxShardings,
  shardingsJson,
  type SpecOf,
} from './shardings.ts';

/** Roles of outputs that are new values of inputs. */
const REPLACING: ReadonlySet<Output['role']> = new Set<Output['role']>(['mutation', 'newstate']);

const IMPORTS = [
  'import jax',
  'import jax.numpy as jnp',
  'import numpy as np',
  'from jax import lax',
];

function write(source: ExportSource): ExportResult {
  const { mesh } = source;
  const inputs = inputShardings(source);
  const outputs = outputShardings(source);
  const losses: ExportLoss[] = [...inputs, ...outputs].flatMap(({ loss }) =>
    loss === undefined ? [] : [loss],
  );
  const program = devicePart(source, losses);
  const head = [...headLines(source, 'jax'), ...lossLines(losses)].map((line) => `# ${line}`);
  const files: ExportFile[] = [];
  if (program !== undefined)
    files.push({ name: 'program.py', text: programText(source, program, inputs, outputs, head) });
  const reference = hloProgram(source.program, source.table);
  files.push(
    { name: 'reference.py', text: referenceText(reference, head) },
    { name: 'shardings.json', text: shardingsJson(mesh, inputs, outputs) },
  );
  if (program !== undefined)
    files.push(
      { name: 'collectives.json', text: collectivesJson(source.lowered(), program.unread) },
      { name: 'check.py', text: packageData('export/jax-check.py') },
    );
  return { files, losses };
}

/** The lowered program; undefined, with a loss, where ranks hold different numbers of rows. */
function devicePart(source: ExportSource, losses: ExportLoss[]): HloProgram | undefined {
  if (losses.length > 0) return undefined;
  const { graph, symbols, mesh } = source.lowered();
  try {
    return hloProgram(graph, source.table, { symbols, mesh });
  } catch (error) {
    if (!(error instanceof ShardwrightError) || error.code !== 'E_EXPORT_UNEVEN') throw error;
    losses.push({
      item: error.details.node ?? source.program.name,
      planned: error.message,
      instead: 'all devices of a JAX program hold equally many rows, so there is no program.py',
    });
    return undefined;
  }
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
  program: HloProgram,
  inputs: readonly SpecOf[],
  outputs: readonly SpecOf[],
  head: readonly string[],
): string {
  const { mesh } = source;
  const names = mesh.names.map(pyString);
  const axes = names.length === 1 ? names[0] : pyTuple(names);
  const body = jaxFunction(
    'device_program',
    'What each device runs: its own part of every input in, its own part of every output out.',
    program,
    axes,
  );
  const reference = hloProgram(source.program, source.table);
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
    `DONATED = ${pyTuple(replacedInputs(source.program).map(String))}`,
    '# The first pattern that is found in the name of an input says how that is cut.',
    'RULES = [',
    ...ruleLines,
    ']',
    '',
    '',
    ...wideLines(program),
    ...body.lines,
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
function replacedInputs(program: Graph): number[] {
  const ownerOf = ownersOfOutputs(program);
  const placeholders = program.nodes.filter(({ kind }) => kind === 'placeholder');
  const replaced = program.outputs.flatMap((output) => {
    const at = output.value === null ? undefined : ownerOf(output);
    return at === undefined || !REPLACING.has(output.role)
      ? []
      : [placeholders.indexOf(program.nodes[at])];
  });
  return [...new Set(replaced)].sort((a, b) => a - b);
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

function referenceText(program: HloProgram, head: readonly string[]): string {
  const body = jaxFunction(
    'reference',
    'The program before it was cut: global arrays in, global arrays out.',
    program,
    '()',
  );
  return [...head, ...IMPORTS, '', '', ...wideLines(program), ...body.lines, ''].join('\n');
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
function collectivesJson({ graph, mesh }: DeviceProgram, unread: ReadonlySet<string>): string {
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
  return `${JSON.stringify({ mesh: mesh.text, collectives: list }, null, 1)}\n`;
}

export const jaxTarget: ExportTarget = {
  name: 'jax',
  summary: 'a jax.shard_map program with the collectives of the plan, and its PartitionSpecs',
  triedWith: ['jax 0.10.2'],
  write,
  readBack: readJaxShardings,
};
