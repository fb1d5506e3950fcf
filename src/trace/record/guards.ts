/**
 * Defines guards: the assumptions of a captured graph. Each guard has a text for people and can be
 * checked on new inputs.
 */

import type { DType } from '../../graph/types.ts';
import { SizeExpression } from '../sizes/size-expression.ts';
import { type DimRange, holds, type SizeGuard } from '../sizes/sizes.ts';
import type { Trace } from './recorder.ts';
import { admissible, type DimSpec, type TensorSpec } from './spec.ts';
import { type HostValue, type Tree, treeText } from './tree.ts';

export type Guard =
  | { readonly kind: 'structure'; readonly text: string }
  | {
      readonly kind: 'tensor';
      readonly text: string;
      readonly path: string;
      readonly dtype: DType;
      /** Sizes; a name means a dim. */
      readonly shape: readonly (number | string)[];
      readonly grad: boolean;
    }
  | { readonly kind: 'range'; readonly text: string; readonly range: DimRange }
  | { readonly kind: 'size'; readonly text: string; readonly guard: SizeGuard }
  | {
      readonly kind: 'host';
      readonly text: string;
      readonly path: string;
      readonly value: HostValue;
    }
  | {
      readonly kind: 'read';
      readonly text: string;
      readonly value: unknown;
      readonly read: () => unknown;
    }
  /**
   * Names and shapes of the parameters that the function declared; it is fixed by the function and
   * not checked.
   */
  | { readonly kind: 'parameters'; readonly text: string };

/**
 * The guards of a finished trace: structure, tensors, host values, dims, size relations, host
 * state, parameters.
 */
export function guardsOf(trace: Trace, tree: Tree<TensorSpec>): Guard[] {
  const guards: Guard[] = [{ kind: 'structure', text: `inputs ${treeText(tree)}` }];
  const walk = (t: Tree<TensorSpec>): void => {
    if (t.kind === 'leaf') guards.push(tensorGuard(t.path, t.leaf));
    else if (t.kind === 'host') {
      const { path, value } = t;
      guards.push({ kind: 'host', path, value, text: `${path} == ${JSON.stringify(value)}` });
    } else if (t.kind === 'list') t.items.forEach(walk);
    else for (const [, inner] of t.entries) walk(inner);
  };
  walk(tree);
  for (const range of trace.dims.ranges.values()) {
    const most = range.max === Infinity ? '' : ` <= ${range.max}`;
    guards.push({ kind: 'range', range, text: `${range.min} <= ${range.name}${most}` });
    if (range.multiple > 1)
      guards.push({ kind: 'range', range, text: `${range.name} % ${range.multiple} == 0` });
  }
  for (const guard of trace.dims.guards)
    guards.push({
      kind: 'size',
      guard,
      text: guard.source === undefined ? guard.text : `${guard.text} at ${guard.source}`,
    });
  for (const { name, value, read } of trace.hostGuards)
    guards.push({ kind: 'read', value, read, text: `${name} == ${JSON.stringify(value)}` });
  const declared = [...trace.declared].map(([name, { text }]) => `${name}: ${text}`);
  const mode = trace.settings.training ? 'training' : 'inference';
  guards.push({ kind: 'parameters', text: `${mode}, parameters {${declared.join(', ')}}` });
  return guards;
}

function tensorGuard(path: string, spec: TensorSpec): Guard {
  const shape = spec.shape.map(sizeOrName);
  const text = `${path}: ${spec.dtype}[${shape.join(', ')}]${spec.grad ? ' grad' : ''}`;
  return { kind: 'tensor', text, path, dtype: spec.dtype, shape, grad: spec.grad };
}

function sizeOrName(size: number | DimSpec): number | string {
  if (typeof size === 'number') return size;
  return size.range.min === size.range.max ? size.range.min : size.range.name;
}

/**
 * The first guard that inputs of concrete sizes break, in words such as `dim 0 of x, 8 -> 16`;
 * undefined if all hold. The set of parameters is not checked: it is the function's own.
 */
export function brokenGuard(guards: readonly Guard[], tree: Tree<TensorSpec>): string | undefined {
  const tensors = new Map<string, TensorSpec>();
  const hosts = new Map<string, HostValue>();
  const walk = (t: Tree<TensorSpec>): void => {
    if (t.kind === 'leaf') tensors.set(t.path, t.leaf);
    else if (t.kind === 'host') hosts.set(t.path, t.value);
    else if (t.kind === 'list') t.items.forEach(walk);
    else for (const [, inner] of t.entries) walk(inner);
  };
  walk(tree);
  const sizes = new Map<string, number>();
  for (const guard of guards) {
    const broken = check(guard, tree, tensors, hosts, sizes);
    if (broken !== undefined) return broken;
  }
  return undefined;
}

function check(
  guard: Guard,
  tree: Tree<TensorSpec>,
  tensors: ReadonlyMap<string, TensorSpec>,
  hosts: ReadonlyMap<string, HostValue>,
  sizes: Map<string, number>,
): string | undefined {
  switch (guard.kind) {
    case 'structure': {
      const text = `inputs ${treeText(tree)}`;
      return text === guard.text ? undefined : `${guard.text} -> ${text}`;
    }
    case 'tensor': {
      const now = tensors.get(guard.path);
      return now === undefined ? `${guard.path} is not a tensor` : tensorChange(guard, now, sizes);
    }
    case 'range': {
      const size = sizes.get(guard.range.name);
      return size === undefined || admissible(guard.range, size)
        ? undefined
        : `${guard.text}, ${guard.range.name} is ${size}`;
    }
    case 'size':
      return holds(guard.guard, sizes)
        ? undefined
        : `${guard.text}, ${namesText(guard.guard, sizes)}`;
    case 'host': {
      const now = hosts.get(guard.path);
      return Object.is(now, guard.value) ? undefined : `${guard.text}, now ${JSON.stringify(now)}`;
    }
    case 'read': {
      const now = guard.read();
      return Object.is(now, guard.value) ? undefined : `${guard.text}, now ${JSON.stringify(now)}`;
    }
    case 'parameters':
      return undefined;
  }
}

function tensorChange(
  guard: Guard & { kind: 'tensor' },
  now: TensorSpec,
  sizes: Map<string, number>,
): string | undefined {
  const { path } = guard;
  if (now.dtype !== guard.dtype) return `dtype of ${path}, ${guard.dtype} -> ${now.dtype}`;
  if (now.shape.length !== guard.shape.length)
    return `rank of ${path}, ${guard.shape.length} -> ${now.shape.length}`;
  if (now.grad !== guard.grad) return `grad of ${path}, ${guard.grad} -> ${now.grad}`;
  for (const [d, wanted] of guard.shape.entries()) {
    const size = sizeOrName(now.shape[d]);
    if (typeof wanted === 'number') {
      if (size !== wanted) return `dim ${d} of ${path}, ${wanted} -> ${size}`;
    } else if (typeof size === 'string') {
      return `dim ${d} of ${path} has no fixed size`;
    } else {
      const bound = sizes.get(wanted);
      if (bound !== undefined && bound !== size)
        return `dim ${d} of ${path}, ${wanted} is ${bound}, but ${size} here`;
      sizes.set(wanted, size);
    }
  }
  return undefined;
}

function namesText({ left, right }: SizeGuard, sizes: ReadonlyMap<string, number>): string {
  const names = [...new Set([...left.names(), ...right.names()])].sort();
  return names.map((name) => `${name} is ${SizeExpression.dim(name).evaluate(sizes)}`).join(', ');
}
