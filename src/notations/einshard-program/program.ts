/**
 * Propagates placements through an einshard program, forward, one mesh dim after the other by the
 * rules of the einsum.
 *
 * On a mesh dim the rule is taken that lets the fewest tensors communicate (one that is read twice
 * in one placement does so once); then the one that slices the fewest whole ones; then one whose
 * output is not pending, that is, letters that stay win over contracted ones (the batch is kept and
 * weights are gathered); then the one that moves the fewest bytes. A pending sum passes through the
 * other side of a product; it is reduced before a function that is not linear, and at the end.
 */

import { dtensorModel } from '../../cost/presets/dtensor.ts';
import { Redistributor } from '../../cost/redistribution/redistribute.ts';
import { defined } from '../../defined.ts';
import { internalError, ShardwrightError, suggestion } from '../../errors.ts';
import { type DType, DTYPE_BYTES } from '../../graph/types.ts';
import type { CollectiveKind } from '../../mesh/collective-kinds.ts';
import {
  partialCode,
  REPLICATE_CODE,
  shardCode,
  ShardingSpace,
} from '../../mesh/sharding/space.ts';
import { P, R, type Rule, rule, type RuleSlot, S } from '../../ops/record/rule.ts';
import { einsumRules } from '../../ops/rules/einsum.ts';
import { product } from '../../product.ts';
import { commonMesh } from '../einshard/common-mesh.ts';
import { resolveEinshard } from '../einshard/resolve.ts';
import { parseEinshard } from '../einshard/syntax.ts';
import type { EinshardProgram, EinsumStep, PointwiseStep, WholeStep } from './steps.ts';

/** A tensor of the program, as the table prints it. */
export interface ProgramValue {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly number[];
  /** einsum letters of its dims, if a step or its expression names them. */
  readonly letters?: string;
  /**
   * One text per mesh dim: of a given tensor as its expression says, of a computed one where its
   * last collective left it.
   */
  readonly placements: readonly string[];
  /**
   * Placements of a computed tensor from its step on: more than one entry if collectives changed
   * them.
   */
  readonly history: readonly { readonly placements: readonly string[]; readonly before?: string }[];
  readonly localShape: readonly number[];
}

export interface ProgramCollective {
  readonly kind: CollectiveKind;
  readonly dtype: DType;
  /** Local shape of the result. */
  readonly shape: readonly number[];
  readonly groups: readonly (readonly number[])[];
  /** Name of the tensor, and the step that asks for it (`the end` for results). */
  readonly tensor: string;
  readonly before: string;
}

export interface ProgramResult {
  /** Sizes of the mesh that all tensors share, without dims of size 1. */
  readonly mesh: readonly number[];
  readonly tensors: readonly ProgramValue[];
  readonly collectives: readonly ProgramCollective[];
}

interface Value {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly given: boolean;
  letters: string | undefined;
  /** Sharding id. */
  now: number;
  history: { id: number; before?: string }[];
  used: boolean;
}

/** The planner's states grow as (rank + 1) ^ mesh dims. */
const MAX_MESH_DIMS = 5;

/**
 * Evaluates a program.
 *
 * @throws E_EINSHARD and E_SYNTAX for expressions, E_REF for operands that are not there, E_SHAPE
 *   where sizes contradict
 */
export function evaluateEinshardProgram(program: EinshardProgram): ProgramResult {
  return new Evaluation(program).run();
}

class Evaluation {
  private readonly space: ShardingSpace;
  private readonly redistributor: Redistributor;
  private readonly values: Value[] = [];
  /** The latest value of each name. */
  private readonly byName = new Map<string, Value>();
  private readonly collectives: ProgramCollective[] = [];
  private latest: Value | undefined;

  constructor(private readonly program: EinshardProgram) {
    const expressions = program.tensors.map((t) => {
      try {
        const expression = parseEinshard(t.expression);
        return resolveEinshard(expression, { devices: program.devices, shape: t.shape });
      } catch (error) {
        if (!(error instanceof ShardwrightError)) throw error;
        throw new ShardwrightError(
          error.code,
          `tensor '${t.name}': ${error.message}`,
          error.details,
        );
      }
    });
    const { mesh, shardings } = commonMesh(expressions);
    if (mesh.rank > MAX_MESH_DIMS)
      throw new ShardwrightError(
        'E_LIMIT',
        `the tensors need a mesh of ${mesh.rank} dims, (${mesh.sizes.join(', ')}), more than ` +
          `${MAX_MESH_DIMS}`,
      );
    this.space = new ShardingSpace(mesh);
    this.redistributor = new Redistributor(this.space, dtensorModel(mesh));
    program.tensors.forEach(({ name, dtype, shape }, i) => {
      const id = this.space.intern(shardings[i]);
      this.add({
        name,
        dtype,
        shape,
        given: true,
        letters: lettersOf(expressions[i].expression.left),
        now: id,
      });
    });
  }

  run(): ProgramResult {
    for (const step of this.program.steps) {
      if (step.kind === 'einsum') this.einsum(step);
      else if (step.kind === 'whole') this.whole(step);
      else this.pointwise(step);
    }
    for (const value of this.values) if (!value.given && !value.used) this.reduce(value, 'the end');
    const { space } = this;
    const texts = (id: number): string[] => space.get(id).placements.map((p) => p.text);
    return {
      mesh: space.mesh.sizes,
      tensors: this.values.map((v) => ({
        name: v.name,
        dtype: v.dtype,
        shape: v.shape,
        ...defined({ letters: v.letters }),
        placements: texts(v.now),
        history: v.history.map(({ id, before }) => ({
          placements: texts(id),
          ...defined({ before }),
        })),
        localShape: space.localShape(v.now, v.shape),
      })),
      collectives: this.collectives,
    };
  }

  private add(value: Omit<Value, 'history' | 'used'>): Value {
    const full: Value = { ...value, history: [{ id: value.now }], used: false };
    this.values.push(full);
    this.byName.set(value.name, full);
    return full;
  }

  private newName(step: Step, name: string): void {
    if (this.byName.has(name))
      throw new ShardwrightError(
        'E_REF',
        `step '${step.text}': there is a tensor '${name}' already`,
        {
          hint: 'give the result a name of its own',
        },
      );
  }

  private named(step: Step, name: string): Value {
    const value = this.byName.get(name);
    if (value === undefined)
      throw new ShardwrightError('E_REF', `step '${step.text}': there is no tensor '${name}'`, {
        hint: suggestion(name, [...this.byName.keys()], 'tensors'),
      });
    return value;
  }

  /** A function of each element: pending sums are reduced first, nothing else moves. */
  private pointwise(step: PointwiseStep): void {
    const value = step.name === undefined ? this.latest : this.named(step, step.name);
    if (value === undefined)
      throw new ShardwrightError('E_REF', `step '${step.text}' has no tensor before it`, {
        hint: `name it: ${step.text.trim()} (X)`,
      });
    this.reduce(value, step.fn);
    this.latest = value;
    if (step.result === undefined) return;
    this.newName(step, step.result);
    value.used = true;
    const { dtype, shape, letters, now } = value;
    this.latest = this.add({ name: step.result, dtype, shape, given: false, letters, now });
  }

  private einsum(step: EinsumStep): void {
    this.newName(step, step.result);
    const operands = this.operandsOf(step);
    const equation = `${step.operands.join(',')}->${step.output}`;
    this.combine(
      step,
      operands,
      step.fn === 'gather' ? gatherRules(step) : einsumRules(equation),
      operands[step.fn === 'gather' ? 1 : 0].dtype,
    );
  }

  /** A function of whole rows, or a sum: the rows are gathered, a sum takes what is pending. */
  private whole(step: WholeStep): void {
    this.newName(step, step.result);
    const { latest } = this;
    const operands =
      step.names?.map((name) => this.named(step, name)) ?? (latest === undefined ? [] : [latest]);
    const [first] = operands;
    if (first === undefined)
      throw new ShardwrightError('E_REF', `step '${step.text}' has no tensor before it`, {
        hint: `name it: ${step.text.trim()} (X)`,
      });
    const own = operands.find(({ letters }) => letters !== undefined)?.letters;
    const letters = own ?? ALPHABET.slice(0, first.shape.length);
    const missing = [...step.over].find((letter) => !letters.includes(letter));
    if (missing !== undefined)
      throw new ShardwrightError(
        'E_REF',
        `step '${step.text}': '${first.name}' has no dim '${missing}', its dims are ` +
          (own === undefined ? 'without letters' : `'${own}'`),
        { hint: 'name the dims in the expression of the tensor or in the einsum that makes it' },
      );
    const { text, result } = step;
    const each = operands.map(() => letters);
    const einsum: EinsumStep = { kind: 'einsum', text, result, operands: each, output: letters };
    const rules = [...letters].flatMap((letter, d) =>
      step.over.includes(letter)
        ? []
        : [
            rule(
              operands.map(() => S(d)),
              [S(d)],
            ),
          ],
    );
    if (step.fn === 'add')
      rules.push(
        rule(
          operands.map(() => P()),
          [P()],
        ),
      );
    this.combine(einsum, operands, rules, first.dtype);
  }

  /** Places operands and result of a step by its rules, one mesh dim after the other. */
  private combine(
    step: EinsumStep,
    operands: readonly Value[],
    own: readonly Rule[],
    dtype: DType,
  ): void {
    const sizes = letterSizes(step, operands);
    const { space } = this;
    const rules: Rule[] = [{ inputs: operands.map(() => R), outputs: [R], origin: 'base' }, ...own];
    const pieces = new Map<string, number>();
    const wanted = operands.map((): number[] => []);
    const out: number[] = [];
    for (let m = 0; m < space.meshRank; m++) {
      const chosen = this.choose(rules, step, operands, sizes, pieces, m);
      chosen.inputs.forEach((slot, i) => wanted[i].push(slotCode(slot)));
      out.push(slotCode(chosen.outputs[0]));
      const letter = cutLetter(chosen, step.operands);
      if (letter !== undefined) pieces.set(letter, (pieces.get(letter) ?? 1) * space.mesh.sizes[m]);
    }
    const moved = new Set<string>();
    operands.forEach((value, i) => {
      value.used = true;
      value.letters ??= step.operands[i];
      const to = space.internCodes(wanted[i]);
      const key = `${value.name} ${to}`;
      if (!moved.has(key)) this.move(value, to, step.result);
      moved.add(key);
    });
    const other = step.fn === 'gather' ? undefined : operands.find((o) => o.dtype !== dtype);
    if (other !== undefined)
      throw new ShardwrightError(
        'E_TYPE',
        `step '${step.text}': '${operands[0].name}' is ${dtype}, but '${other.name}' is ` +
          `${other.dtype}`,
      );
    const shape = [...step.output].map((letter) => sizes.get(letter) ?? 1);
    const now = space.internCodes(out);
    this.latest = this.add({
      name: step.result,
      dtype,
      shape,
      given: false,
      letters: step.output,
      now,
    });
  }

  /** The rule of one mesh dim, see the head of the file. */
  private choose(
    rules: readonly Rule[],
    step: EinsumStep,
    operands: readonly Value[],
    sizes: ReadonlyMap<string, number>,
    pieces: ReadonlyMap<string, number>,
    m: number,
  ): Rule {
    const { space } = this;
    const have = operands.map((o) => space.kindAt(o.now, m));
    let best: Rule | undefined;
    let bestScore: readonly number[] = [];
    for (const candidate of rules) {
      const letter = cutLetter(candidate, step.operands);
      if (letter !== undefined) {
        const cut = (pieces.get(letter) ?? 1) * space.mesh.sizes[m];
        if ((sizes.get(letter) ?? 1) % cut !== 0) continue;
      }
      let moves = 0;
      let slices = 0;
      let bytes = 0;
      let possible = true;
      candidate.inputs.forEach((slot, i) => {
        const want = slotCode(slot);
        if (
          want === have[i] ||
          operands.some(
            (o, k) => k < i && o === operands[i] && slotCode(candidate.inputs[k]) === want,
          )
        )
          return;
        if (slot?.kind === 'partial') possible = false;
        else if (have[i] === REPLICATE_CODE) slices++;
        else {
          moves++;
          bytes += DTYPE_BYTES[operands[i].dtype] * product(operands[i].shape);
        }
      });
      if (!possible) continue;
      const score = [moves, slices, candidate.outputs[0]?.kind === 'partial' ? 1 : 0, bytes];
      if (best === undefined || before(score, bestScore)) {
        best = candidate;
        bestScore = score;
      }
    }
    if (best === undefined)
      throw internalError(`step '${step.text}' has no rule, not even the one that cuts nothing`);
    return best;
  }

  /** Reduces what is pending, in place. */
  private reduce(value: Value, why: string): void {
    const { space } = this;
    const codes: number[] = [];
    for (let m = 0; m < space.meshRank; m++) {
      const code = space.kindAt(value.now, m);
      codes.push(code === PENDING ? REPLICATE_CODE : code);
    }
    this.move(value, space.internCodes(codes), why);
  }

  /**
   * Brings a value to a sharding and notes the collectives. A computed value stays there if it took
   * any.
   */
  private move(value: Value, to: number, before: string): void {
    if (value.now === to) return;
    const { space, collectives } = this;
    const type = { shape: value.shape, itemBytes: DTYPE_BYTES[value.dtype] };
    const plan = this.redistributor.plan(type, value.now, to);
    if (plan === undefined)
      throw internalError(
        `no way from ${space.text(value.now)} to ${space.text(to)} for '${value.name}'`,
      );
    for (const step of plan.steps) {
      if (step.kind === 'slice' || step.kind === 'to_partial' || step.kind === 'relabel') continue;
      collectives.push({
        kind: step.kind,
        dtype: value.dtype,
        shape: space.localShape(step.to, value.shape),
        groups: space.mesh.groups(step.meshDims),
        tensor: value.name,
        before,
      });
    }
    if (value.given || plan.collectives === 0) return;
    value.now = to;
    value.history.push({ id: to, before });
  }

  /**
   * The operands of an einsum. Where the step does not name them: the value with these letters, the
   * latest result first; else the first tensor that is not used yet, has as many dims, and does not
   * name them otherwise.
   */
  private operandsOf(step: EinsumStep): Value[] {
    if (step.names !== undefined) return step.names.map((name) => this.named(step, name));
    const taken = new Set<Value>();
    return step.operands.map((letters, i) => {
      const { latest } = this;
      const order = [...(latest === undefined ? [] : [latest]), ...this.values].filter(
        (v) => !taken.has(v),
      );
      const found =
        order.find((v) => v.letters === letters && (!v.used || v === latest)) ??
        order.find((v) => v.letters === letters) ??
        order.find(
          (v) => !v.used && v.shape.length === letters.length && agrees(v.letters, letters),
        );
      if (found === undefined)
        throw new ShardwrightError(
          'E_REF',
          `step '${step.text}': no tensor is left for operand ${i + 1}, '${letters}'`,
          {
            hint:
              `name the operands: ${step.text.trim()} ` +
              `(${[...this.byName.keys()].slice(0, step.operands.length).join(', ')})`,
          },
        );
      taken.add(found);
      return found;
    });
  }
}

type Step = EinsumStep | PointwiseStep | WholeStep;

const PENDING = partialCode('sum');
const ALPHABET = 'abcdefghijklmnopqrstuvwxyz';

/**
 * Rows of a table: cut with the numbers of rows, along a row, or by rows, of which each device adds
 * those that it has.
 */
function gatherRules({ operands: [numbers, table], output }: EinsumStep): Rule[] {
  return [...output]
    .flatMap((letter, d): Rule[] => {
      const [a, b] = [numbers.indexOf(letter), table.indexOf(letter)];
      return [rule([a < 0 ? R : S(a), b < 0 ? R : S(b)], [S(d)])];
    })
    .concat(
      [...table].flatMap((letter, d) => (output.includes(letter) ? [] : [rule([R, S(d)], [P()])])),
    );
}

function slotCode(slot: RuleSlot | undefined): number {
  if (slot === null || slot === undefined || slot.kind === 'replicate') return REPLICATE_CODE;
  return slot.kind === 'shard' ? shardCode(slot.dim) : partialCode(slot.op);
}

/** Letter that a rule cuts, if it cuts one. */
function cutLetter(rule: Rule, operands: readonly string[]): string | undefined {
  for (const [i, slot] of rule.inputs.entries())
    if (slot?.kind === 'shard') return operands[i][slot.dim];
  return undefined;
}

function before(a: readonly number[], b: readonly number[]): boolean {
  const i = a.findIndex((x, k) => x !== b[k]);
  return i >= 0 && a[i] < b[i];
}

/** Letters of a tensor whose expression names every dim with one letter. */
function lettersOf(left: ReturnType<typeof parseEinshard>['left']): string | undefined {
  let out = '';
  for (const element of left) {
    if (element.kind !== 'name' || element.name.length !== 1) return undefined;
    out += element.name;
  }
  return out;
}

/** Tells whether names of a tensor's dims do not contradict the letters of an operand. */
function agrees(own: string | undefined, letters: string): boolean {
  return (
    own === undefined ||
    [...letters].every((letter, d) => !own.includes(letter) || own[d] === letter)
  );
}

function letterSizes(step: EinsumStep, operands: readonly Value[]): Map<string, number> {
  const sizes = new Map<string, number>();
  operands.forEach(({ name, shape }, i) => {
    const letters = step.operands[i];
    if (shape.length !== letters.length)
      throw new ShardwrightError(
        'E_TYPE',
        `step '${step.text}': operand '${letters}' has ${letters.length} dims, but '${name}' ` +
          `is [${shape.join(', ')}]`,
      );
    [...letters].forEach((letter, d) => {
      const known = sizes.get(letter);
      if (known !== undefined && known !== shape[d])
        throw new ShardwrightError(
          'E_TYPE',
          `step '${step.text}': '${letter}' is ${known}, but ${shape[d]} in '${name}' ` +
            `[${shape.join(', ')}]`,
        );
      sizes.set(letter, shape[d]);
    });
  });
  return sizes;
}
