/** Replaces the names of a body by what they mean in the graph that contains it. */

import type { Arg } from '../../graph/types.ts';
import { isList, isRef } from '../../graph/value.ts';

/** Name of a value of a body in the opened graph. */
export function nameOf(name: string, renamed: ReadonlyMap<string, Arg>): string {
  const value = renamed.get(name);
  return value !== undefined && isRef(value) ? value.name : name;
}

/** An argument with the names of a body put for what they mean in the opened graph. */
export function replaced(arg: Arg, renamed: ReadonlyMap<string, Arg>): Arg {
  if (typeof arg !== 'object' || arg === null) return arg;
  if (isList(arg)) return arg.map((member) => replaced(member, renamed));
  switch (arg.kind) {
    case 'value':
      return renamed.get(arg.name) ?? arg;
    case 'slice':
      return {
        ...arg,
        start: replaced(arg.start, renamed),
        stop: replaced(arg.stop, renamed),
        step: replaced(arg.step, renamed),
      };
    default:
      return arg;
  }
}
