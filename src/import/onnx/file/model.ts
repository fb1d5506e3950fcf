/**
 * The parts of an ONNX model that planning needs, as records. Field numbers are those of
 * onnx.proto.
 */

import { ShardwrightError } from '../../../errors.ts';
import type { DType } from '../../../graph/types.ts';
import { dtypeOf, MAX_LIST, MAX_NAME, MAX_RANK, type OnnxTensor, readTensor } from './tensor.ts';
import { WireReader } from './wire.ts';

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
  /**
   * A size, the name of a symbolic size, or null where nothing is said; absent for an unknown rank.
   */
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

const MAX_TEXT = 1 << 20;
const MAX_NODES = 2_000_000;

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
 * @throws E_SYNTAX (with the byte), E_ENCODING, E_LIMIT, E_UNSUPPORTED for sparse initializers,
 *   dtypes and values without a counterpart
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

function readPair<T>(
  reader: WireReader,
  read: (r: WireReader) => T,
): { key: string; value: T | undefined } {
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
        throw unsupported('a sparse initializer', reader, 'store the weight densely');
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
        if (attributes.has(attribute.name))
          throw reader.fail(`attribute '${attribute.name}' is given twice`);
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
    if (inputs.length + outputs.length > MAX_LIST)
      throw reader.fail('a node has too many inputs and outputs');
  }
  return {
    inputs,
    outputs,
    name,
    op,
    domain: domain === 'ai.onnx' ? '' : domain,
    attributes,
    metadata,
    offset,
  };
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
        throw unsupported(`attribute '${name}' holds a sparse tensor`, reader, 'store it densely');
      case 21:
        throw unsupported(
          `attribute '${name}' refers to one of a function`,
          reader,
          'inline the functions: onnx.inliner.inline_local_functions',
        );
      default:
    }
  }
  return { ...found, name, floats, ints, texts };
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
        throw unsupported(
          'a value that is a sequence, map or optional',
          reader,
          'export the model with tensors only',
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

function unsupported(what: string, reader: WireReader, hint: string): ShardwrightError {
  return new ShardwrightError('E_UNSUPPORTED', `${what}, at byte ${reader.offset}`, { hint });
}
