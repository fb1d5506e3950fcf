/** Tells which bodies a higher-order FX call runs and the types of their inputs. */

import type { Arg, ValueType } from '../../graph/types.ts';
import { isGraphRef, isList, isRef, NONE_TYPE, tensorType } from '../../graph/value.ts';

/** The part of a call that says which bodies it runs. */
interface BodyCall {
  readonly target: string;
  readonly args: readonly Arg[];
}

/**
 * Types that a higher-order call hands to the inputs of its bodies, by name of the body; empty for
 * any other call. For texts whose bodies state no types; where they do, `controlCall` of src/graph
 * checks them against the same conventions.
 */
export function bodyInputs(
  { target, args }: BodyCall,
  typeOf: (name: string) => ValueType,
): ReadonlyMap<string, readonly ValueType[]> {
  const found = new Map<string, readonly ValueType[]>();
  const type = (arg: Arg | undefined): ValueType =>
    arg !== undefined && isRef(arg) ? typeOf(arg.name) : NONE_TYPE;
  const list = (at: number): ValueType[] => {
    const arg: Arg | undefined = args[at];
    return arg !== undefined && isList(arg) ? arg.map(type) : [];
  };
  const give = (at: number, inputs: readonly ValueType[]): void => {
    const arg: Arg | undefined = args[at];
    if (arg !== undefined && isGraphRef(arg)) found.set(arg.name, inputs);
  };
  switch (target) {
    case 'cond':
      give(1, list(3));
      give(2, list(3));
      break;
    case 'while_loop':
      give(0, [...list(2), ...list(3)]);
      give(1, [...list(2), ...list(3)]);
      break;
    case 'scan':
      give(0, [...list(1), ...list(2).map(row), ...list(3)]);
      break;
    case 'map':
    case 'map_impl':
      give(0, [...list(1).map(row), ...list(2)]);
      break;
    case 'wrap_with_set_grad_enabled':
      give(1, args.slice(2).map(type));
      break;
    case 'wrap_with_autocast':
      give(4, args.slice(5).map(type));
      break;
    default:
  }
  return found;
}

/** One row of a scanned tensor. */
function row(type: ValueType): ValueType {
  return type.kind === 'tensor' && type.shape.length > 0
    ? tensorType(type.dtype, type.shape.slice(1))
    : type;
}
