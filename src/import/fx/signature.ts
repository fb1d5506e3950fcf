/** Works out what the inputs and outputs of an FX text are to the program. */

import { nonEmpty } from '../../defined.ts';
import type { NodeMeta, Output, Role } from '../../graph/types.ts';
import { eachOperand, sameType } from '../../graph/value.ts';
import { itemAt } from '../../item-at.ts';
import { countedText } from '../../units.ts';
import { listedTwiceNote, withoutGradientNote } from '../complete/tie-notes.ts';
import type { Scanner } from '../file/scan.ts';
import { type InputDescriptor, inputDescriptor, outputDescriptor } from './descriptor.ts';
import type { Signature } from './graph.ts';
import type { FxClass, FxInput } from './record.ts';

/**
 * The roles of the inputs and outputs of an FX text in the program. Expanded joint texts state them
 * in comments; otherwise they are inferred from the producer's conventions and marked `inferred`,
 * with a sentence in the notes.
 */
export function signatureOf(root: FxClass, scanner: Scanner): Signature {
  const read = ownSignature(root, scanner);
  const decomposed = /^# Decomposed at capture: (.+)$/m.exec(scanner.text)?.[1];
  if (decomposed === undefined) return read;
  const note =
    'Operators without rules of their own, which have those of what PyTorch decomposes them ' +
    `into: ${decomposed}.`;
  return { ...read, notes: [...read.notes, note] };
}

function ownSignature(root: FxClass, scanner: Scanner): Signature {
  const described = root.inputs.some((input) => input.descriptor !== undefined);
  if (described) return new JointSignature(root, scanner, true).read();
  if (root.joint || looksJoint(root)) return new JointSignature(root, scanner, false).read();
  const names = root.inputs.map((input) => input.name);
  if (names.some((name) => /^tangents_\d+$/.test(name))) return backwardSignature(root);
  if (names.some((name) => /^[pbc]_/.test(name))) return exportSignature(root);
  if (names.some((name) => name.startsWith('L_'))) return dynamoSignature(root);
  return plainSignature(root);
}

/**
 * A joint graph whose inputs were listed one by one: every primal is there, and more is returned
 * than their gradients.
 */
function looksJoint(root: FxClass): boolean {
  let primals = 0;
  let tangents = 0;
  for (const { name } of root.inputs) {
    if (name === `primals_${primals + 1}`) primals++;
    else if (/^tangents_\d+$/.test(name)) tangents++;
    else return false;
  }
  return tangents > 0 && primals > 0 && root.returns.length > primals;
}

/** Joint graphs: outputs are mutated buffers, user outputs, then one gradient slot per primal. */
class JointSignature {
  private readonly inputs: NodeMeta[] = [];
  private readonly notes: string[] = [];
  private readonly taken = new Set<string>();
  /** Positions of the primals among the inputs. */
  private readonly primals: number[] = [];

  constructor(
    private readonly root: FxClass,
    private readonly scanner: Scanner,
    private readonly described: boolean,
  ) {}

  read(): Signature {
    const { inputs, returns } = this.root;
    inputs.forEach((input, i) => {
      if (!isTangent(input)) this.primals.push(i);
    });
    const slots = returns.length - this.primals.length;
    if (slots < 0 && this.root.joint)
      throw this.scanner.error(
        'E_TYPE',
        `a joint graph of ${this.primals.length} primals returns ${returns.length} values`,
        returns[0]?.offset ?? this.root.offset,
        'it must return the forward outputs and then one gradient (or None) per primal',
      );
    // Forward graphs carry input descriptors too, but no gradient slots.
    const hasSlots = slots >= 0 && (this.root.joint || inputs.length > this.primals.length);
    const forwardCount = hasSlots ? slots : returns.length;
    const gradient = new Set<number>();
    if (hasSlots) {
      this.primals.forEach((at, k) => {
        if (itemAt(returns, slots + k).value !== null) gradient.add(at);
      });
    }
    let tangents = 0;
    for (const [i, input] of inputs.entries())
      this.inputs.push(this.input(input, gradient.has(i), () => tangents++));
    if (!this.described) {
      const parameters = gradient.size;
      this.notes.push(
        'The text states no roles: ' +
          (parameters === 1
            ? '1 primal with a gradient counts as a parameter, '
            : `${parameters} primals with a gradient count as parameters, `) +
          `${this.primals.length - parameters} as inputs; --role NAME=parameter corrects this.`,
      );
      if (forwardCount > tangents)
        this.notes.push(
          `${countedText(forwardCount, 'forward output')} but ` +
            `${countedText(tangents, 'tangent')}: the first outputs may be updated buffers, ` +
            'which the text does not mark.',
        );
    }
    if (hasSlots) this.noteWithoutGradient(gradient);
    return { inputs: this.inputs, outputs: this.outputs(forwardCount), notes: this.notes };
  }

  /** A parameter without gradient is frozen, or the second name of a tied weight. */
  private noteWithoutGradient(gradient: ReadonlySet<number>): void {
    const names = this.inputs.flatMap((meta, i) =>
      meta.role === 'parameter' && !gradient.has(i) ? [meta.roleName ?? ''] : [],
    );
    if (names.length === 0) return;
    this.notes.push(withoutGradientNote(names));
  }

  private input(input: FxInput, hasGradient: boolean, nextTangent: () => number): NodeMeta {
    const stated = input.descriptor === undefined ? undefined : inputDescriptor(input.descriptor);
    if (stated?.kind === 'tangent' || (stated === undefined && isTangent(input))) {
      const position = nextTangent();
      const index = stated?.kind === 'tangent' ? (stated.output ?? position) : position;
      return {
        role: 'tangent',
        roleIndex: index,
        ...(stated === undefined ? { inferred: true } : {}),
      };
    }
    if (stated?.kind === 'parameter' || stated?.kind === 'buffer')
      return { role: stated.kind, roleName: this.unique(stated.target, input.name) };
    const roleName = this.unique(input.name, input.name);
    if (stated !== undefined) return { role: 'input', roleName };
    return { role: hasGradient ? 'parameter' : 'input', roleName, inferred: true };
  }

  /**
   * Two inputs of one name (a tied weight listed twice) would be ambiguous: the second keeps its
   * own name.
   */
  private unique(wanted: string, own: string): string {
    const name = this.taken.has(wanted) ? own : wanted;
    if (name !== wanted) this.notes.push(listedTwiceNote(wanted, own));
    this.taken.add(name);
    return name;
  }

  private outputs(forwardCount: number): Omit<Output, 'value'>[] {
    const { root, scanner } = this;
    let userOutputs = 0;
    return root.returns.map((entry, i) => {
      const stated =
        entry.descriptor === undefined ? undefined : outputDescriptor(entry.descriptor);
      if (i >= forwardCount) {
        const primal = itemAt(this.inputs, itemAt(this.primals, i - forwardCount));
        const of = primal.roleName ?? '';
        if (stated?.kind === 'grad') {
          const named = roleNameOf(stated.of);
          if (named !== undefined && named !== of)
            throw scanner.error(
              'E_REF',
              `the gradient of '${named}' is in the slot of '${of}'`,
              entry.offset,
              'gradients stand in the order of the primals',
            );
        }
        return { role: 'grad', of };
      }
      if (stated?.kind === 'mutation') {
        const named = roleNameOf(stated.of);
        if (named !== undefined && this.taken.has(named)) return { role: 'mutation', of: named };
        if (stated.of.kind === 'input') {
          const wanted = this.root.inputs.findIndex(
            (input) => input.descriptor !== undefined && sameInput(input.descriptor, stated.of),
          );
          if (wanted >= 0)
            return { role: 'mutation', of: itemAt(this.inputs, wanted).roleName ?? '' };
        }
        throw scanner.error(
          'E_REF',
          `an updated input is returned that is not among the inputs`,
          entry.offset,
        );
      }
      return { role: 'output', index: userOutputs++ };
    });
  }
}

function sameInput(descriptor: string, wanted: InputDescriptor): boolean {
  const own = inputDescriptor(descriptor);
  return (
    own.kind === 'input' &&
    wanted.kind === 'input' &&
    own.index !== undefined &&
    own.index === wanted.index
  );
}

function roleNameOf(descriptor: InputDescriptor): string | undefined {
  return descriptor.kind === 'parameter' || descriptor.kind === 'buffer'
    ? descriptor.target
    : undefined;
}

function isTangent(input: FxInput): boolean {
  if (input.descriptor !== undefined) return input.descriptor.startsWith('TangentAOTInput');
  return /^tangents_\d+$/.test(input.name);
}

function userOutputs(root: FxClass): Omit<Output, 'value'>[] {
  return root.returns.map((_, i) => ({ role: 'output', index: i }));
}

/**
 * Backward part alone: gradients in the order of primals that are not all here, so that they cannot
 * be linked.
 */
function backwardSignature(root: FxClass): Signature {
  let tangents = 0;
  return {
    inputs: root.inputs.map((input): NodeMeta =>
      isTangent(input)
        ? { role: 'tangent', roleIndex: tangents++, inferred: true }
        : { role: 'input', roleName: input.name, inferred: true },
    ),
    outputs: userOutputs(root),
    notes: [
      'This is the backward part of a joint graph: its gradients are returned as plain ' +
        'outputs, in the order of the primals.',
    ],
  };
}

/** Names of the values that some node uses or that are returned. */
function usedInputs(root: FxClass): ReadonlySet<string> {
  const used = new Set<string>();
  for (const node of root.nodes) eachOperand(node, (name) => used.add(name));
  for (const entry of root.returns) if (entry.value !== null) used.add(entry.value);
  return used;
}

/**
 * A parameter that nothing uses is the second name of a tied weight, which torch.export lists twice
 * while all calls read one of the names. Where one parameter alone has its type, the two are tied;
 * else it counts as a constant. `tied` names those whose other name is known from elsewhere, which
 * stay parameters; then nothing is guessed.
 */
export function withoutUnused(
  signature: Signature,
  root: FxClass,
  tied?: ReadonlySet<string>,
): Signature {
  const used = usedInputs(root);
  const nameAt = (i: number): string => itemAt(signature.inputs, i).roleName ?? '';
  const isUsed = (i: number): boolean => used.has(itemAt(root.inputs, i).name);
  const unused: string[] = [];
  const groups = new Map<number, number[]>();
  const notes: string[] = [];
  const inputs = signature.inputs.map((meta, i): NodeMeta => {
    if (meta.role !== 'parameter' || isUsed(i) || tied?.has(nameAt(i)) === true) return meta;
    const { type } = itemAt(root.inputs, i);
    const twins = signature.inputs.flatMap(({ role }, j) => {
      const other = itemAt(root.inputs, j).type;
      const fits =
        role === 'parameter' &&
        isUsed(j) &&
        type !== undefined &&
        other !== undefined &&
        sameType(type, other);
      return fits ? [j] : [];
    });
    const [twin, ...others] = twins;
    if (twin === undefined || others.length > 0 || tied !== undefined) {
      unused.push(nameAt(i));
      return { ...meta, role: 'constant' };
    }
    groups.set(twin, [...(groups.get(twin) ?? [twin]), i]);
    notes.push(
      `${nameAt(i)} is never used, and ${nameAt(twin)} alone has its type: they count as ` +
        `one tied weight; --role ${nameAt(i)}=constant corrects this.`,
    );
    return meta;
  });
  if (unused.length > 0)
    notes.push(
      `${unused.join(', ')}: never used, as the second name of a tied weight is; not counted ` +
        'as a parameter.',
    );
  if (notes.length === 0) return signature;
  const ties = [...groups.values()].map((group) => group.sort((a, b) => a - b).map(nameAt));
  return {
    ...signature,
    inputs,
    notes: [...signature.notes, ...notes],
    ...nonEmpty({ ties }),
  };
}

/**
 * torch.export: `p_` parameters, `b_` buffers, `c_` constants. Dots of the names are lost; the
 * signature text has them.
 */
function exportSignature(root: FxClass): Signature {
  const inputs = root.inputs.map(({ name }): NodeMeta => {
    const role: Role = name.startsWith('p_')
      ? 'parameter'
      : name.startsWith('b_')
        ? 'buffer'
        : name.startsWith('c_')
          ? 'constant'
          : 'input';
    return { role, roleName: name, inferred: true };
  });
  const notes = [
    'Roles are read from the prefixes p_, b_ and c_ of torch.export; names have _ for the ' +
      'dots that the text has lost.',
  ];
  return withoutUnused({ inputs, outputs: userOutputs(root), notes }, root);
}

/** Dynamo: `L_self_modules_fc1_parameters_weight_` is `fc1.weight`, `L_x_` is the input `x`. */
function dynamoSignature(root: FxClass): Signature {
  const taken = new Set<string>();
  const inputs = root.inputs.map(({ name }): NodeMeta => {
    const decoded = dynamoName(name);
    const roleName = taken.has(decoded.name) ? name : decoded.name;
    taken.add(roleName);
    return { role: decoded.role, roleName, inferred: true };
  });
  return {
    inputs,
    outputs: userOutputs(root),
    notes: ['Roles and names are decoded from the input names of Dynamo.'],
  };
}

function dynamoName(name: string): { role: Role; name: string } {
  const match = /^L_self_(.*?)(parameters|buffers)_(.+?)_?$/.exec(name);
  if (match === null) return { role: 'input', name: /^L_(.+?)_?$/.exec(name)?.[1] ?? name };
  const modules = (match[1] ?? '').split('modules_').map((part) => part.replace(/_$/, ''));
  const path = [...modules, match[3]].filter((part) => part !== '');
  return { role: match[2] === 'parameters' ? 'parameter' : 'buffer', name: path.join('.') };
}

function plainSignature(root: FxClass): Signature {
  return {
    inputs: root.inputs.map(({ name }): NodeMeta => ({
      role: 'input',
      roleName: name,
      inferred: true,
    })),
    outputs: userOutputs(root),
    notes: [
      'The text states no roles: every placeholder counts as an input; --role NAME=parameter ' +
        'corrects this.',
    ],
  };
}
