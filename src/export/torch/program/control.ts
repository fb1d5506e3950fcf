/**
 * Writes loops and branches as Python calls of their bodies: a scan runs its body trip by trip, a
 * condition runs the body that is taken. The deciding value is whole on every device, so all
 * devices decide the same; it is read on the host. Source of the calls: `torch.ops.higher_order`,
 * which `passes/control/control-form.ts` reads.
 */
import { pyBool, pyList, pyTuple } from '../../../backend/python-text.ts';
import { ShardwrightError } from '../../../errors.ts';
import { CONTROL_TARGETS } from '../../../graph/control.ts';
import type { Arg, Graph, Node } from '../../../graph/types.ts';
import { isRef } from '../../../graph/value.ts';
import type { DeviceProgram } from '../../../lower/program/program.ts';
import {
  type ControlForm,
  controlForm,
  type ScanForm,
} from '../../../passes/control/control-form.ts';
import type { Helper } from './helpers.ts';
import { sizeAt } from './sizes.ts';

/** A control-flow call as text, and whether a value decides on the host what runs. */
interface ControlText {
  readonly text: string;
  readonly helpers: readonly Helper[];
  readonly decides: boolean;
}

/** Bodies of a graph and of its bodies, each once, in the order of their calls. */
export function bodiesOf(graph: Graph): Graph[] {
  const found = new Set<Graph>();
  const visit = ({ subgraphs }: Graph): void => {
    for (const body of Object.values(subgraphs)) {
      if (found.has(body)) continue;
      visit(body);
      found.add(body);
    }
  };
  visit(graph);
  return [...found];
}

/**
 * Parts of a control-flow call; undefined for any other call.
 *
 * @throws E_UNSUPPORTED, with the node, for the wrappers and regions that PyTorch has no text of
 */
export function controlOf(node: Node, { subgraphs }: Graph): ControlForm | undefined {
  const form = controlForm(node, subgraphs);
  if (form === undefined && CONTROL_TARGETS.includes(node.target))
    throw new ShardwrightError('E_UNSUPPORTED', `${node.target} has no text in PyTorch`, {
      node: node.name,
      hint: 'loops (scan, map, while_loop), branches (cond, case) and calls are exported.',
    });
  return form;
}

/** The program around a call of control flow, as it is written. */
interface Around {
  readonly program: DeviceProgram;
  readonly typeOf: (name: string) => Node['type'];
  /** The text of an argument. */
  readonly argument: (arg: Arg) => string;
  /** The name of the function that a body is. */
  readonly body: (graph: Graph) => string;
}

/**
 * @param first name of the list of what a loop starts from, which the call empties; undefined: it
 *   is written here
 */
export function controlText(
  node: Node,
  form: ControlForm,
  around: Around,
  first?: string,
): ControlText {
  const { argument, body } = around;
  const list = (args: readonly Arg[]): string => pyList(args.map(argument));
  switch (form.kind) {
    case 'scan': {
      const trips = tripsText(node, form, around);
      const args = [
        body(form.step),
        first ?? list(form.init),
        list(form.xs),
        list(form.captured),
        trips,
        pyBool(form.reverse),
      ];
      return { text: `scan(here, ${args.join(', ')})`, helpers: ['scan'], decides: false };
    }
    case 'while': {
      const args = [
        body(form.condition),
        body(form.step),
        first ?? list(form.carry),
        list(form.captured),
      ];
      if (form.maxTrips !== undefined) args.push(String(form.maxTrips));
      return {
        text: `while_loop(here, ${args.join(', ')})`,
        helpers: ['while_loop'],
        decides: true,
      };
    }
    case 'branch': {
      const names = form.bodies.map(({ graph }) => body(graph));
      const operands = ['here', ...form.operands.map(argument)].join(', ');
      if (form.test === null)
        return { text: `${names[0]}(${operands})`, helpers: [], decides: false };
      const test = argument(form.test);
      const taken =
        node.target === 'cond'
          ? `(${names[0]} if bool(${test}) else ${names[1]})`
          : `case(${test}, ${pyTuple(names)})`;
      return {
        text: `${taken}(${operands})`,
        helpers: node.target === 'cond' ? [] : ['case'],
        decides: true,
      };
    }
  }
}

/** Trips as a number, or as the rows at hand, which may be more on one device than on another. */
function tripsText(node: Node, form: ScanForm, { program, argument, typeOf }: Around): string {
  const trips = tripsOf(program, node, form, typeOf);
  if (trips.includes(0))
    throw new ShardwrightError(
      'E_UNSUPPORTED',
      `${node.name} has no trip on device ${trips.indexOf(0)}, so no value that it stacks`,
      {
        node: node.name,
        hint: 'pin what it goes over to R, or take a mesh of fewer devices.',
      },
    );
  return trips.every((n) => n === trips[0]) ? String(trips[0]) : `${argument(form.xs[0])}.shape[0]`;
}

/** Trips of a scan on each device. */
export function tripsOf(
  program: DeviceProgram,
  { kwargs, name }: Node,
  { xs }: ScanForm,
  typeOf: (name: string) => Node['type'],
): number[] {
  const ranks = program.mesh.devices.map((_, rank) => rank);
  const [first] = xs;
  const type = first !== undefined && isRef(first) ? typeOf(first.name) : undefined;
  if (type?.kind === 'tensor') return ranks.map((rank) => sizeAt(program, type.shape[0], rank));
  const { length } = kwargs;
  if (typeof length === 'number') return ranks.map(() => length);
  throw new ShardwrightError('E_UNSUPPORTED', 'a scan without rows or length', { node: name });
}
