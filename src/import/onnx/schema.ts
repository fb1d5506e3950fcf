/**
 * The attributes and inputs that ONNX defines for each operator and version, with their defaults
 * (`data/onnx-schemas.json`, from `onnx.defs`), and the check that a conversion has read all that a
 * node states.
 */

import { packageData } from '../../platform/platform.ts';
import type { OnnxAttribute, OnnxNode } from './file/model.ts';

interface Version {
  readonly since: number;
  readonly inputs: readonly string[];
  readonly attributes: Readonly<Record<string, { readonly default?: unknown }>>;
}

let schemas: ReadonlyMap<string, readonly Version[]> | undefined;

function versionsOf(op: string): readonly Version[] {
  if (schemas === undefined) {
    const data = JSON.parse(packageData('onnx-schemas.json')) as {
      readonly operators: Readonly<Record<string, readonly Version[]>>;
    };
    schemas = new Map(Object.entries(data.operators));
  }
  return schemas.get(op) ?? [];
}

/** One statement of a node that its conversion did not read: an attribute or an input. */
interface Unread {
  readonly what: string;
  readonly hint: string;
}

/**
 * The first attribute or input of a node that was not read and is not at its default; undefined
 * where the conversion knows all that the node says.
 */
export function firstUnread(
  node: OnnxNode,
  opset: number,
  attributes: ReadonlySet<string>,
  inputs: ReadonlySet<number>,
): Unread | undefined {
  const version =
    node.domain === '' ? versionsOf(node.op).findLast(({ since }) => since <= opset) : undefined;
  for (const [name, attribute] of node.attributes) {
    if (attributes.has(name)) continue;
    const known = version?.attributes[name]?.default;
    if (known !== undefined && isEqual(attribute, known)) continue;
    const works = known === undefined ? 'without it' : `at its default, ${JSON.stringify(known)}`;
    return {
      what: `attribute '${name}' is ${valueText(attribute)}, which is not modelled`,
      hint: `${node.op} is read ${works}: write the operator in others that have no such attribute`,
    };
  }
  for (const [i, name] of node.inputs.entries()) {
    if (name === '' || inputs.has(i)) continue;
    const word = version?.inputs[i] ?? version?.inputs.at(-1) ?? 'unknown';
    return {
      what: `input ${i} (${word}) is '${name}', which is not modelled`,
      hint: `${node.op} is read without this input: leave it out, or write the operator in others`,
    };
  }
  return undefined;
}

function isEqual(attribute: OnnxAttribute, value: unknown): boolean {
  if (Array.isArray(value)) return listOf(attribute).join() === value.join();
  if (typeof value === 'string') return attribute.text === value;
  // A default of float32 is the nearest one to what the operator's page says.
  return attribute.int === value || attribute.float === value;
}

function listOf({ ints, floats, texts }: OnnxAttribute): readonly unknown[] {
  return ints.length > 0 ? ints : floats.length > 0 ? floats : texts;
}

function valueText(attribute: OnnxAttribute): string {
  const { int, float, text } = attribute;
  if (text !== undefined) return `'${text.slice(0, 80)}'`;
  if (int !== undefined || float !== undefined) return String(int ?? float);
  if (attribute.tensor !== undefined) return 'a tensor';
  return attribute.graph !== undefined
    ? 'a graph'
    : `[${listOf(attribute).slice(0, 20).join(', ')}]`;
}
