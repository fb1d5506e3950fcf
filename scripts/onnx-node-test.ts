/**
 * Runs one node test of ONNX (`onnx.backend.test`), as `engines/onnx_node_tests.py` writes it, on the
 * importer and the kernels.
 */

import { ShardwrightError } from '../src/errors.ts';
import type { Graph, Node } from '../src/graph/types.ts';
import { importOnnx } from '../src/import/onnx/import.ts';
import { type ElementType, flat, fromFlat, NDArray } from '../src/ndarray/array.ts';
import { builtinOperators } from '../src/ops/builtin.ts';
import { evaluateGraph } from '../src/simulate/evaluate.ts';

interface Numbers {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly data: readonly (number | string)[];
}

export interface NodeTest {
  readonly name: string;
  readonly ops: readonly string[];
  readonly opset: number;
  readonly model: string;
  readonly baked: string | null;
  readonly inputs: Readonly<Record<string, Numbers | null>>;
  readonly outputs: readonly (Numbers | null)[];
  readonly rtol: number;
  readonly atol: number;
}

export interface NodeResult {
  readonly name: string;
  readonly result: 'right' | 'wrong' | 'refused';
  readonly why: string;
  readonly ops: readonly string[];
}

const DTYPES: Readonly<Record<string, ElementType>> = {
  float64: 'f64',
  float32: 'f32',
  float16: 'f16',
  bfloat16: 'bf16',
  float8_e4m3fn: 'f8e4m3fn',
  float8_e5m2: 'f8e5m2',
  float8_e8m0fnu: 'f8e8m0fnu',
  int64: 'i64',
  int32: 'i32',
  int16: 'i16',
  int8: 'i8',
  uint64: 'u64',
  uint32: 'u32',
  uint16: 'u16',
  uint8: 'u8',
  bool: 'b8',
};

const table = builtinOperators();

/** Runs a test: its numbers are those of ONNX, or others, or the file is refused. */
export function runNodeTest(test: NodeTest): NodeResult {
  const told = (result: NodeResult['result'], why: string): NodeResult => ({
    name: test.name,
    result,
    why,
    ops: test.ops,
  });
  const attempts = [test.model, ...(test.baked === null ? [] : [test.baked])];
  let refusal = '';
  for (const model of attempts) {
    try {
      const { graph } = importOnnx(Buffer.from(model, 'base64'));
      const opaque = graph.nodes.find((n) => n.kind === 'call' && n.target.startsWith('onnx.'));
      if (opaque !== undefined) {
        refusal = `E_UNKNOWN_OP no operator here is ${opaque.target}`;
        continue;
      }
      const wrong = differs(test, graph);
      return wrong === undefined ? told('right', '') : told('wrong', wrong);
    } catch (error) {
      if (!(error instanceof ShardwrightError)) return told('wrong', `crash: ${String(error)}`);
      refusal = `${error.code} ${error.message}`;
    }
  }
  return told('refused', refusal);
}

function differs(test: NodeTest, graph: Graph): string | undefined {
  const placeholders = graph.nodes.filter((n) => n.kind === 'placeholder');
  const { outputs } = evaluateGraph(
    table,
    graph,
    placeholders.map((node) => valueOf(test, node)),
  );
  for (const [i, wanted] of test.outputs.entries()) {
    const found = outputs[i];
    if (wanted === null || !(found instanceof NDArray)) return `output ${i} is not a tensor`;
    const dtype = DTYPES[wanted.dtype];
    if (dtype !== found.dtype) return `output ${i} is ${found.dtype}, not ${wanted.dtype}`;
    if (found.shape.join() !== wanted.shape.join())
      return `output ${i} is [${found.shape.join()}], not [${wanted.shape.join()}]`;
    const own = flat(found);
    const at = wanted.data.findIndex((v, k) => !isClose(own[k], numberOf(v), test, dtype));
    if (at >= 0) return `output ${i}[${at}] is ${own[at]}, not ${wanted.data[at]}`;
  }
  return undefined;
}

/** Bits of the fraction, the least exponent and the greatest number of narrow types. */
const NARROW: Readonly<Partial<Record<ElementType, readonly [number, number, number]>>> = {
  f16: [10, -14, 65504],
  bf16: [7, -126, 3.4e38],
  f8e4m3fn: [3, -6, 448],
  f8e5m2: [2, -14, 57344],
  f8e8m0fnu: [0, -127, 2 ** 127],
};

/** Equal to the tolerance of the test; arrays here are not rounded to a narrow type, those of ONNX are. */
function isClose(a: number, b: number, test: NodeTest, dtype: ElementType): boolean {
  if (Object.is(a, b) || a === b || (Number.isNaN(a) && Number.isNaN(b))) return true;
  const [bits, least, most] = NARROW[dtype] ?? [52, -1022, Infinity];
  if (Math.abs(b) === most && Math.sign(a) === Math.sign(b) && Math.abs(a) >= most) return true;
  const step = 2 ** (Math.max(least, Math.floor(Math.log2(Math.abs(b)))) - bits);
  // A program of narrow numbers rounds more than once.
  return Math.abs(a - b) <= Math.max(test.atol, 1e-6, 2 * step) + test.rtol * Math.abs(b);
}

function numberOf(text: number | string): number {
  return typeof text === 'number' ? text : Number(text.replace('inf', 'Infinity'));
}

function valueOf(test: NodeTest, node: Node): NDArray {
  const wanted = node.meta.roleName ?? node.name;
  const given = test.inputs[wanted];
  if (given === undefined || given === null)
    throw new ShardwrightError('E_INPUT', `the test has no numbers for ${wanted}`, {});
  return fromFlat(given.shape, Float64Array.from(given.data, numberOf), DTYPES[given.dtype]);
}
