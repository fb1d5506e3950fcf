/**
 * The communication of a compiled program: which collectives, over which devices, of how many
 * bytes.
 */

import { checkKinds } from '../../arguments.ts';
import { elements } from '../../ops/record/record.ts';
import { decodeUtf8 } from '../../utf8.ts';
import { gunzip, type UnpackLimits } from '../file/unpack.ts';
import { replicaGroups, sourceTargetPairs } from './groups.ts';
import { parseHlo } from './module.ts';
import { elementBits, type HloReader } from './reader.ts';
import type { HloInstruction, HloType } from './syntax.ts';

const COLLECTIVE_KINDS = [
  'all-gather',
  'all-reduce',
  'all-to-all',
  'collective-broadcast',
  'collective-permute',
  'ragged-all-to-all',
  'reduce-scatter',
] as const;
type CollectiveKind = (typeof COLLECTIVE_KINDS)[number];

/** One collective of a compiled program. */
export interface HloCollective {
  readonly kind: CollectiveKind;
  /** Name of the instruction, and of the computation that contains it. */
  readonly name: string;
  readonly computation: string;
  /**
   * Type of the result on one device, without layout: `f32[8,64]`, or `(f32[4], f32[8])` where
   * several share one call.
   */
  readonly type: string;
  /** Bytes of the result on one device. */
  readonly resultBytes: number;
  /**
   * Devices of every group; empty where one group has all of them, or where `pairs` says who sends
   * to whom.
   */
  readonly groups: readonly (readonly number[])[];
  readonly pairs?: readonly (readonly [source: number, target: number])[];
}

/** The contents of a compiled program (HLO text): instructions by opcode, and its collectives. */
export interface HloSummary {
  readonly name: string;
  /** Instructions over all computations, each once. */
  readonly instructions: number;
  /** By opcode, most frequent first. */
  readonly ops: Readonly<Record<string, number>>;
  /** By kind, each place in the text once (a loop body too); `-start` and `-done` are one. */
  readonly collectives: Readonly<Partial<Record<CollectiveKind, number>>>;
  readonly collectiveList: readonly HloCollective[];
}

/** Limits on what is unpacked, and a name for messages. */
export interface HloOptions extends UnpackLimits {
  /** File name for messages. */
  readonly file?: string;
}

/**
 * Summarises a program as XLA compiled it: operations and collectives of HLO text
 * (`--xla_dump_hlo_as_text`, or `compiled.as_text()` in JAX), packed or not. Types and bytes are
 * those of one device.
 *
 * @throws E_SYNTAX, E_REF, E_DUP, E_TYPE, E_LIMIT with line and column; E_ARCHIVE, E_ENCODING
 */
export function readHlo(input: Uint8Array | string, options: HloOptions = {}): HloSummary {
  checkKinds('readHlo', {
    input: [input, 'string', 'list'],
    options: [options, 'record', 'undefined'],
  });
  const text = typeof input === 'string' ? input : decodeUtf8(gunzip(input, options));
  const { module, reader } = parseHlo(text, options.file);
  const counts = new Map<string, number>();
  const found: HloCollective[] = [];
  let instructions = 0;
  for (const computation of module.computations) {
    const done = new Map<string, HloInstruction>();
    for (const instruction of computation.instructions) {
      const [started] = instruction.operands;
      if (instruction.opcode.endsWith('-done') && started !== undefined)
        done.set(started, instruction);
    }
    for (const instruction of computation.instructions) {
      instructions++;
      counts.set(instruction.opcode, (counts.get(instruction.opcode) ?? 0) + 1);
      const kind = kindOf(instruction.opcode);
      if (kind === undefined) continue;
      // The type of a start also lists its operands; that of its end is the result.
      const { type } = done.get(instruction.name) ?? instruction;
      found.push(collective(kind, computation.name, instruction, type, reader));
    }
  }
  const ops = Object.fromEntries([...counts].sort(([a, x], [b, y]) => y - x || (a < b ? -1 : 1)));
  const collectives: Partial<Record<CollectiveKind, number>> = {};
  for (const kind of COLLECTIVE_KINDS) {
    const count = found.filter((c) => c.kind === kind).length;
    if (count > 0) collectives[kind] = count;
  }
  return { name: module.name, instructions, ops, collectives, collectiveList: found };
}

function kindOf(opcode: string): CollectiveKind | undefined {
  const base = opcode.endsWith('-start') ? opcode.slice(0, -'-start'.length) : opcode;
  return COLLECTIVE_KINDS.find((kind) => kind === base);
}

function collective(
  kind: CollectiveKind,
  computation: string,
  { name, attributes }: HloInstruction,
  type: HloType,
  reader: HloReader,
): HloCollective {
  const groups = attributes.get('replica_groups');
  const pairs = attributes.get('source_target_pairs');
  return {
    kind,
    name,
    computation,
    type: typeText(type),
    resultBytes: bytesOf(type),
    groups: groups === undefined ? [] : replicaGroups(reader, groups),
    ...(pairs === undefined ? {} : { pairs: sourceTargetPairs(reader, pairs) }),
  };
}

function typeText(type: HloType): string {
  return type.kind === 'tuple'
    ? `(${type.items.map(typeText).join(', ')})`
    : `${type.element}[${type.shape.join(',')}]`;
}

function bytesOf(type: HloType): number {
  if (type.kind === 'tuple') return type.items.reduce((n, item) => n + bytesOf(item), 0);
  return Math.ceil((elements(type.shape) * elementBits(type.element)) / 8);
}
