import { ShardwrightError } from '../../errors.ts';
import type { DType } from '../../graph/types.ts';
import { WireReader } from './wire.ts';

/** The parts of an ONNX model that planning needs, as records. Field numbers are those of onnx.proto. */

export interface OnnxTensor {
  readonly name: string;
  readonly dims: readonly number[];
  readonly dtype: DType;
  /** Elements, where there are few enough to matter for shapes; absent for weights. */
  readonly values?: readonly (number | bigint)[];
}

export interface OnnxAttribute {
  readonly name: string;
  readonly float?: number;
  readonly int?: number | bigint;
  readonly text?: string;
  readonly tensor?: OnnxTensor;
  readonly graph?: OnnxGraph;
  readonly floats: readonly number[];
  readonly ints: readonly (number | bigint)[];
  readonly texts: readonly string[];
}

export interface OnnxNode {
  /** '' for an absent optional input. */
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly name: string;
  readonly op: string;
  /** '' is ai.onnx. */
  readonly domain: string;
  readonly attributes: ReadonlyMap<string, OnnxAttribute>;
  readonly metadata: ReadonlyMap<string, string>;
  /** Byte offset, for messages. */
  readonly offset: number;
}

export interface OnnxValue {
  readonly name: string;
  readonly dtype?: DType;
  /** A size, the name of a symbolic size, or null where nothing is said; absent for an unknown rank. */
  readonly shape?: readonly (number | string | null)[];
}

export interface OnnxGraph {
  readonly name: string;
  readonly nodes: readonly OnnxNode[];
  readonly initializers: readonly OnnxTensor[];
  readonly inputs: readonly OnnxValue[];
  readonly outputs: readonly OnnxValue[];
  readonly values: readonly OnnxValue[];
}

export interface OnnxModel {
  readonly irVersion: number;
  readonly graph: OnnxGraph;
  /** Version by domain; '' is ai.onnx. */
  readonly opsets: ReadonlyMap<string, number>;
  /** Operators that the model itself defines, `domain.name`. */
  readonly functions: ReadonlySet<string>;
}

const DTYPES: ReadonlyMap<number, DType> = new Map<number, DType>([
  [1, 'f32'], [2, 'u8'], [3, 'i8'], [4, 'u16'], [5, 'i16'], [6, 'i32'], [7, 'i64'], [9, 'b8'], [10, 'f16'], [11, 'f64'],
  [12, 'u32'], [13, 'u64'], [14, 'c64'], [15, 'c128'], [16, 'bf16'], [17, 'f8e4m3fn'], [19, 'f8e5m2'], [24, 'f8e8m0fnu'],
]); // prettier-ignore

const MAX_NAME = 4096;
const MAX_TEXT = 1 << 20;
const MAX_NODES = 2_000_000;
const MAX_RANK = 64;
const MAX_LIST = 1 << 20;
/** Elements beyond which an initializer is a weight and its contents are not read. */
const MAX_CONSTANT = 1024;

/** Counts what a model may not have without end. */
class Budget {
  private nodes = 0;
  node(at: number): void {
    if (++this.nodes > MAX_NODES)
      throw new ShardwrightError('E_LIMIT', `more than ${MAX_NODES} nodes, at byte ${at}`, {
        hint: 'import a smaller part',
      });
  }
}

/**
 * Reads a serialized ModelProto.
 *
 * @throws E_SYNTAX (with the byte), E_ENCODING, E_LIMIT, E_UNSUPPORTED for sparse initializers, dtypes and values without
 *   a counterpart
 */
export function readModel(bytes: Uint8Array): OnnxModel {
  const reader = new WireReader(bytes);
  const budget = new Budget();
  let irVersion = 0;
  let graph: OnnxGraph | undefined;
  const opsets = new Map<string, number>();
  const functions = new Set<string>();
  while (reader.next()) {
    if (reader.field === 1) irVersion = reader.small();
    else if (reader.field === 7) {
      if (graph !== undefined) throw reader.fail('the model has two graphs');
      graph = readGraph(reader.message(), budget);
    } else if (reader.field === 8) {
      const opset = readPair(reader.message(), (r) => r.small());
      opsets.set(opset.key === 'ai.onnx' ? '' : opset.key, opset.value ?? 1);
    } else if (reader.field === 25) functions.add(functionName(reader.message()));
  }
  if (graph === undefined) throw reader.fail('the model has no graph', 0);
  return { irVersion, graph, opsets, functions };
}

function readPair<T>(reader: WireReader, read: (r: WireReader) => T): { key: string; value: T | undefined } {
  let key = '';
  let value: T | undefined;
  while (reader.next()) {
    if (reader.field === 1) key = reader.text(MAX_NAME);
    else if (reader.field === 2) value = read(reader);
  }
  return { key, value };
}

function functionName(reader: WireReader): string {
  let name = '';
  let domain = '';
  while (reader.next()) {
    if (reader.field === 1) name = reader.text(MAX_NAME);
    else if (reader.field === 10) domain = reader.text(MAX_NAME);
  }
  return `${domain}.${name}`;
}

function readGraph(reader: WireReader, budget: Budget): OnnxGraph {
  let name = '';
  const nodes: OnnxNode[] = [];
  const initializers: OnnxTensor[] = [];
  const inputs: OnnxValue[] = [];
  const outputs: OnnxValue[] = [];
  const values: OnnxValue[] = [];
  while (reader.next()) {
    switch (reader.field) {
      case 1:
        budget.node(reader.offset);
        nodes.push(readNode(reader.message(), budget));
        break;
      case 2:
        name = reader.text(MAX_NAME);
        break;
      case 5:
        budget.node(reader.offset);
        initializers.push(readTensor(reader.message()));
        break;
      case 11:
        inputs.push(readValue(reader.message()));
        break;
      case 12:
        outputs.push(readValue(reader.message()));
        break;
      case 13:
        values.push(readValue(reader.message()));
        break;
      case 15:
        throw new ShardwrightError('E_UNSUPPORTED', `a sparse initializer, at byte ${reader.offset}`, {
          hint: 'store the weight densely',
        });
      default:
    }
  }
  return { name, nodes, initializers, inputs, outputs, values };
}

function readNode(reader: WireReader, budget: Budget): OnnxNode {
  const offset = reader.start;
  const inputs: string[] = [];
  const outputs: string[] = [];
  let name = '';
  let op = '';
  let domain = '';
  const attributes = new Map<string, OnnxAttribute>();
  const metadata = new Map<string, string>();
  while (reader.next()) {
    switch (reader.field) {
      case 1:
        inputs.push(reader.text(MAX_NAME));
        break;
      case 2:
        outputs.push(reader.text(MAX_NAME));
        break;
      case 3:
        name = reader.text(MAX_NAME);
        break;
      case 4:
        op = reader.text(MAX_NAME);
        break;
      case 5: {
        const attribute = readAttribute(reader.message(), budget);
        if (attributes.has(attribute.name)) throw reader.fail(`attribute '${attribute.name}' is given twice`);
        attributes.set(attribute.name, attribute);
        break;
      }
      case 7:
        domain = reader.text(MAX_NAME);
        break;
      case 9: {
        const { key, value } = readPair(reader.message(), (r) => r.text(MAX_TEXT));
        metadata.set(key, value ?? '');
        break;
      }
      default:
    }
    if (inputs.length + outputs.length > MAX_LIST) throw reader.fail('a node has too many inputs and outputs');
  }
  return { inputs, outputs, name, op, domain: domain === 'ai.onnx' ? '' : domain, attributes, metadata, offset };
}

function readAttribute(reader: WireReader, budget: Budget): OnnxAttribute {
  const floats: number[] = [];
  const ints: (number | bigint)[] = [];
  const texts: string[] = [];
  const found: { -readonly [K in keyof OnnxAttribute]?: OnnxAttribute[K] } = {};
  let name = '';
  while (reader.next()) {
    switch (reader.field) {
      case 1:
        name = reader.text(MAX_NAME);
        break;
      case 2:
        found.float = reader.float();
        break;
      case 3:
        found.int = reader.int();
        break;
      case 4:
        found.text = reader.text(MAX_TEXT);
        break;
      case 5:
        found.tensor = readTensor(reader.message());
        break;
      case 6:
        found.graph = readGraph(reader.message(), budget);
        break;
      case 7:
        reader.floats(floats, MAX_LIST);
        break;
      case 8:
        reader.ints(ints, MAX_LIST);
        break;
      case 9:
        texts.push(reader.text(MAX_TEXT));
        break;
      case 11:
      case 22:
        throw new ShardwrightError(
          'E_UNSUPPORTED',
          `attribute '${name}' holds a sparse tensor, at byte ${reader.offset}`,
        );
      case 21:
        throw new ShardwrightError(
          'E_UNSUPPORTED',
          `attribute '${name}' refers to one of a function, at byte ${reader.offset}`,
        );
      default:
    }
  }
  return { ...found, name, floats, ints, texts };
}

function readTensor(reader: WireReader): OnnxTensor {
  const dims: (number | bigint)[] = [];
  let type = 0;
  let name = '';
  let raw: Uint8Array | undefined;
  let external = false;
  const floats: number[] = [];
  const ints: (number | bigint)[] = [];
  while (reader.next()) {
    switch (reader.field) {
      case 1:
        reader.ints(dims, MAX_RANK);
        break;
      case 2:
        type = reader.small();
        break;
      case 8:
        name = reader.text(MAX_NAME);
        break;
      case 9:
        raw = reader.raw();
        break;
      case 4:
        if (reader.wire !== 2 || reader.raw().length <= 4 * MAX_CONSTANT) reader.floats(floats, MAX_LIST);
        break;
      case 5:
      case 7:
        if (reader.wire !== 2 || reader.raw().length <= 10 * MAX_CONSTANT) reader.ints(ints, MAX_LIST);
        break;
      case 14:
        external = reader.small() === 1;
        break;
      default:
    }
  }
  const dtype = dtypeOf(type, `tensor '${name}'`);
  let count = 1;
  const sizes = dims.map((dim) => {
    if (typeof dim === 'bigint' || dim < 0) throw reader.fail(`tensor '${name}' has a size of ${dim}`, reader.start);
    count *= dim;
    return dim;
  });
  if (!Number.isSafeInteger(count))
    throw new ShardwrightError('E_LIMIT', `tensor '${name}' has more than 2^53 elements`, {
      hint: 'the file may be damaged',
    });
  const values = external || count > MAX_CONSTANT ? undefined : elements(dtype, count, raw, floats, ints);
  return { name, dims: sizes, dtype, ...(values !== undefined ? { values } : {}) };
}

/** Elements of a small tensor; undefined where they are stored in a way that shapes never are. */
function elements(
  dtype: DType,
  count: number,
  raw: Uint8Array | undefined,
  floats: readonly number[],
  ints: readonly (number | bigint)[],
): (number | bigint)[] | undefined {
  if (raw !== undefined && raw.length > 0) return rawElements(dtype, count, raw);
  if (dtype === 'f32' && floats.length === count) return [...floats];
  const integer = /^[iu]|^b8$/.test(dtype);
  return integer && ints.length === count ? [...ints] : undefined;
}

function rawElements(dtype: DType, count: number, raw: Uint8Array): (number | bigint)[] | undefined {
  const view = new DataView(raw.buffer, raw.byteOffset, raw.byteLength);
  const read = (bytes: number, at: (offset: number) => number | bigint): (number | bigint)[] | undefined =>
    raw.length === bytes * count ? Array.from({ length: count }, (_, i) => at(i * bytes)) : undefined;
  switch (dtype) {
    case 'i64':
      return read(8, (o) => {
        const value = view.getBigInt64(o, true);
        return Number.isSafeInteger(Number(value)) ? Number(value) : value;
      });
    case 'i32':
      return read(4, (o) => view.getInt32(o, true));
    case 'f32':
      return read(4, (o) => view.getFloat32(o, true));
    case 'f64':
      return read(8, (o) => view.getFloat64(o, true));
    case 'b8':
    case 'u8':
      return read(1, (o) => view.getUint8(o));
    case 'i8':
      return read(1, (o) => view.getInt8(o));
    case 'f16':
      return read(2, (o) => half(view.getUint16(o, true)));
    case 'bf16':
      return read(2, (o) => {
        view32.setUint32(0, view.getUint16(o, true) << 16);
        return view32.getFloat32(0);
      });
    default:
      return undefined;
  }
}

const view32 = new DataView(new ArrayBuffer(4));

/** Value of IEEE half precision bits. */
function half(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** Type of a value: only tensors have one here; a sequence or map has none. */
function readValue(reader: WireReader): OnnxValue {
  let name = '';
  let type: { dtype?: DType; shape?: (number | string | null)[] } = {};
  while (reader.next()) {
    if (reader.field === 1) name = reader.text(MAX_NAME);
    else if (reader.field === 2) type = readType(reader.message());
  }
  return { name, ...type };
}

function readType(reader: WireReader): { dtype?: DType; shape?: (number | string | null)[] } {
  const type: { dtype?: DType; shape?: (number | string | null)[] } = {};
  while (reader.next()) {
    if (reader.field !== 1) {
      if (reader.field === 4 || reader.field === 5 || reader.field === 9)
        throw new ShardwrightError(
          'E_UNSUPPORTED',
          `a value that is a sequence, map or optional, at byte ${reader.offset}`,
        );
      continue;
    }
    const tensor = reader.message();
    while (tensor.next()) {
      if (tensor.field === 1) {
        const number = tensor.small();
        if (number !== 0) type.dtype = dtypeOf(number, 'a value');
      } else if (tensor.field === 2) {
        const shape: (number | string | null)[] = [];
        const dims = tensor.message();
        while (dims.next()) {
          if (dims.field !== 1) continue;
          if (shape.length >= MAX_RANK) throw dims.fail(`more than ${MAX_RANK} dims`);
          shape.push(readDim(dims.message()));
        }
        type.shape = shape;
      }
    }
  }
  return type;
}

function readDim(reader: WireReader): number | string | null {
  let dim: number | string | null = null;
  while (reader.next()) {
    if (reader.field === 1) {
      const size = reader.small();
      if (size < 0) throw reader.fail(`a size of ${size}`);
      dim = size;
    } else if (reader.field === 2) {
      const symbol = reader.text(MAX_NAME);
      dim = symbol === '' ? null : symbol;
    }
  }
  return dim;
}

export function dtypeOf(number: number, what: string): DType {
  const dtype = DTYPES.get(number);
  if (dtype !== undefined) return dtype;
  throw new ShardwrightError('E_UNSUPPORTED', `${what} has the ONNX type number ${number}${number === 8 ? ' (string)' : ''}, which no graph here holds`, {
    hint: 'numbers from float8 to int64 and bool are read',
  }); // prettier-ignore
}
