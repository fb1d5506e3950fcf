/** Checks the rules of the graph record and names the place where one is broken. */

import { checkKinds } from '../arguments.ts';
import { defined } from '../defined.ts';
import { messageOf, ShardwrightError } from '../errors.ts';
import { controlCall, placeholdersOf } from './control.ts';
import { interpret } from './interpret.ts';
import { linePosition, nodesByName } from './nodes.ts';
import { lintError, topologicalOrder, undefinedOutput, undefinedValue } from './order.ts';
import {
  type Arg,
  DTYPE_BYTES,
  type Graph,
  type Node,
  type Output,
  type ValueType,
} from './types.ts';
import { eachOperand, getOwn, isList, NO_KWARGS, sameShape, sameType, typeText } from './value.ts';

/** Type of a call by the operator's own rule; undefined where the operator is not known. */
export type Retype = (node: Node, typeOf: (name: string) => ValueType) => ValueType | undefined;

const MAX_BODY_DEPTH = 256;

/**
 * Checks the rules of the graph record: names defined once and before use, references resolve, no
 * cycles, bodies of the right arity and types, literals only, no forward value made from a backward
 * one, gradients like their targets, outputs sound. With `retype`, every stated type is compared
 * with the operator's own. Linear; run after every pass.
 *
 * The structure is walked here and not by the interpreter, which may read a graph only once these
 * checks have passed: its index wants every name defined once (and costs twice what the checks do,
 * on graphs that nobody may read afterwards).
 *
 * @throws E_GRAPH_LINT naming the check and the node; E_TYPE where a stated type differs from the
 *   operator's
 */
export function lintGraph(graph: Graph, retype?: Retype): void {
  checkKinds('lintGraph', {
    graph: [graph, 'graph'],
    retype: [retype, 'function', 'undefined'],
  });
  lintBody(graph, retype, 0);
}

function lintBody(graph: Graph, retype: Retype | undefined, depth: number): void {
  if (depth > MAX_BODY_DEPTH)
    throw lintError('bodies', undefined, `graph ${graph.name} nests deeper than ${MAX_BODY_DEPTH}`);
  const linter = new BodyLinter(graph);
  linter.checkNodes();
  linter.checkBodies();
  if (retype !== undefined) checkTypes(graph, retype);
  linter.checkEnds();
  for (const name of Object.keys(graph.subgraphs))
    lintBody(getOwn(graph.subgraphs, name)!, retype, depth + 1);
}

/** The checks of one graph that know the names before each node. */
class BodyLinter {
  private readonly defined = new Map<string, Node>();
  private readonly roleNames = new Map<string, Node>();

  constructor(private readonly graph: Graph) {}

  /** One walk over the nodes: names, roles, arguments and sizes. */
  checkNodes(): void {
    const { graph, defined } = this;
    let callsSeen = false;
    for (const node of graph.nodes) {
      if (defined.has(node.name))
        throw lintError('single definition', node, 'the name is defined twice');
      if (node.name === '') throw lintError('names', node, 'a node has an empty name');
      if (node.kind === 'placeholder') {
        if (callsSeen)
          throw lintError('order', node, 'a placeholder follows a call; placeholders come first');
        checkRole(node, this.roleNames);
      } else {
        callsSeen = true;
        if (node.target === '' || (node.kind === 'call' && node.target === 'get_attr'))
          throw lintError('targets', node, `'${node.target}' is not an operator`);
        for (let i = 0; i < node.args.length; i++) this.checkArg(node.args[i], node, 0);
        if (node.kwargs !== NO_KWARGS)
          for (const key of Object.keys(node.kwargs)) this.checkArg(node.kwargs[key], node, 0);
      }
      checkSizes(node.type, node);
      defined.set(node.name, node);
    }
  }

  /** The bodies of control-flow calls fit their calls. */
  checkBodies(): void {
    const { graph, defined } = this;
    for (const node of graph.nodes) {
      if (node.kind !== 'call') continue;
      checkControl(node, graph, (name) => {
        const operand = defined.get(name);
        if (operand === undefined) throw undefinedValue(name, node, defined);
        return operand.type;
      });
    }
  }

  /** The outputs, the ties and the shardings that are given. */
  checkEnds(): void {
    const { graph, defined, roleNames } = this;
    checkOutputs(graph, defined, roleNames);
    for (const name of (graph.ties ?? []).flat()) {
      if (roleNames.get(name)?.meta.role !== 'parameter')
        throw lintError(
          'ties',
          undefined,
          `'${name}' is tied, but is not a parameter of graph ${graph.name}`,
        );
    }
    for (const { value, output } of graph.given ?? []) {
      const known =
        value !== undefined
          ? defined.has(value)
          : output !== undefined && output < graph.outputs.length;
      if (!known)
        throw lintError(
          'given shardings',
          undefined,
          `one is of ${value ?? `output ${output}`}, which is not there`,
        );
    }
  }

  /** Literals are literals, subgraphs exist, and values are defined. */
  private checkArg(arg: Arg, node: Node, depth: number): void {
    switch (typeof arg) {
      case 'string':
      case 'boolean':
      case 'bigint':
        return;
      case 'number':
        if (!Number.isSafeInteger(arg))
          throw lintError(
            'literals',
            node,
            `the number ${arg} is not an exact integer`,
            'use { kind: "float", value } or a bigint',
          );
        return;
      case 'object':
        if (arg !== null) this.checkRecord(arg, node, depth);
        return;
      default:
        throw lintError(
          'literals',
          node,
          `an argument is a ${typeof arg}, which no graph may hold`,
        );
    }
  }

  private checkRecord(arg: Extract<Arg, object>, node: Node, depth: number): void {
    if (depth > 256) throw lintError('literals', node, 'an argument nests deeper than 256 lists');
    if (isList(arg)) {
      for (let i = 0; i < arg.length; i++) this.checkArg(arg[i], node, depth + 1);
      return;
    }
    switch (arg.kind) {
      case 'graph':
        if (!Object.hasOwn(this.graph.subgraphs, arg.name))
          throw lintError(
            'references resolve',
            node,
            `uses subgraph @${arg.name}, which graph ${this.graph.name} does not have`,
          );
        return;
      case 'slice':
        for (const part of [arg.start, arg.stop, arg.step]) this.checkArg(part, node, depth + 1);
        return;
      case 'value':
        this.checkUse(arg.name, node);
        return;
      case 'float':
      case 'dtype':
      case 'device':
      case 'layout':
      case 'size':
        return;
      default:
        throw lintError(
          'literals',
          node,
          `an argument is of unknown kind ${JSON.stringify(arg satisfies never)}`,
        );
    }
  }

  private checkUse(name: string, user: Node): void {
    const operand = this.defined.get(name);
    if (operand === undefined) throw unresolved(this.graph, name, user);
    if (
      user.meta.phase === 'forward' &&
      operand.meta.phase !== undefined &&
      operand.meta.phase !== 'forward'
    )
      throw lintError(
        'phases',
        user,
        `a forward node uses ${name}, which is of the ${operand.meta.phase} phase`,
      );
  }
}

/** Texts of numbers that are not integers: no symbol has such a name. */
const NO_SIZE = /^[+-]?(nan|inf(inity)?|[\d.]+(e[+-]?\d+)?)$/i;

/** Sizes are integers or symbols, and the bytes of a tensor can be counted exactly. */
function checkSizes(type: ValueType, node: Node): void {
  if (type.kind === 'tuple') for (const item of type.items) checkSizes(item, node);
  if (type.kind !== 'tensor') return;
  let bytes = DTYPE_BYTES[type.dtype];
  for (const dim of type.shape) {
    if (typeof dim !== 'number' && NO_SIZE.test(dim.sym))
      throw sizeError(
        'E_TYPE',
        `'${dim.sym}' in ${typeText(type)} is not a size`,
        node,
        'a size is an integer of at least 0 or an expression in symbols',
      );
    bytes *= typeof dim === 'number' ? dim : (dim.example ?? 1);
  }
  if (bytes > Number.MAX_SAFE_INTEGER)
    throw sizeError(
      'E_LIMIT',
      `a tensor of ${typeText(type)} has ${bytes.toPrecision(2)} bytes, more than 2^53`,
      node,
      'no devices hold it; check its sizes',
    );
}

function sizeError(code: string, message: string, node: Node, hint: string): ShardwrightError {
  const { line } = node.meta;
  return new ShardwrightError(code, message, {
    node: node.name,
    ...defined({ position: linePosition(line) }),
    hint,
  });
}

/** Every stated type is the operator's own. */
function checkTypes(graph: Graph, retype: Retype): void {
  interpret<ValueType>(graph, {
    placeholder: (node) => node.type,
    getAttr: (node) => node.type,
    call(node, _operands, frame) {
      const ours = retype(node, (name) => frame.value(name));
      if (ours !== undefined && !agrees(node.type, ours)) throw typeMismatch(node, ours);
      return node.type;
    },
  });
}

/** Equal, where a `none` inside a stated tuple means a result that the source does not type. */
function agrees(stated: ValueType, ours: ValueType): boolean {
  if (stated.kind === 'tuple' && ours.kind === 'tuple') {
    if (stated.items.length > ours.items.length) return false;
    return stated.items.every((item, i) => item.kind === 'none' || agrees(item, ours.items[i]));
  }
  return sameType(atExamples(stated), atExamples(ours));
}

/** Types are derived at the examples of symbolic sizes, so that is where they are compared. */
function atExamples(type: ValueType): ValueType {
  if (type.kind !== 'tensor' || type.shape.every((dim) => typeof dim === 'number')) return type;
  return {
    ...type,
    shape: type.shape.map((dim) => (typeof dim === 'number' ? dim : (dim.example ?? dim))),
  };
}

/** The E_TYPE error for a stated type that differs from the operator's own. */
function typeMismatch(node: Node, ours: ValueType): ShardwrightError {
  return new ShardwrightError(
    'E_TYPE',
    `${node.name}: the file says ${typeText(node.type)}, but ${node.target} gives ` +
      `${typeText(ours)}`,
    {
      node: node.name,
      ...defined({ position: linePosition(node.meta.line) }),
      ...defined({ path: node.meta.path }),
      hint: mismatchHint(node, node.type, ours),
    },
  );
}

/**
 * The edit for a call whose stated type is not that of its operator. A factory that names no dtype
 * has that of `torch.set_default_dtype`, which no text holds.
 */
export function mismatchHint(
  call: Pick<Node, 'name' | 'args' | 'kwargs'>,
  stated: ValueType,
  ours: ValueType,
): string {
  let operands = 0;
  eachOperand(call, () => operands++);
  if (operands === 0 && stated.kind === 'tensor' && ours.kind === 'tensor')
    if (stated.dtype !== ours.dtype && sameShape(stated.shape, ours.shape))
      return (
        `write the dtype in the call, as in dtype = torch.bfloat16: ${call.name} names none, and ` +
        'the default dtype of the run is not in the text'
      );
  return (
    `correct the operands and arguments of ${call.name}; if they are those of the program, write ` +
    `${typeText(ours)} in its annotation`
  );
}

/** Undefined name: never defined, defined later, or part of a cycle; each has its own message. */
function unresolved(graph: Graph, name: string, user: Node): ShardwrightError {
  const known = nodesByName(graph);
  if (!known.has(name)) return undefinedValue(name, user, known);
  try {
    topologicalOrder(graph.nodes);
  } catch (error) {
    if (error instanceof ShardwrightError) return error;
    throw error;
  }
  return lintError(
    'definition before use',
    user,
    `uses ${name}, which is defined only later`,
    `move ${name} before ${user.name}`,
  );
}

function checkRole(node: Node, roleNames: Map<string, Node>): void {
  const { role, roleName, roleIndex, stateName } = node.meta;
  if (role === undefined) throw lintError('roles', node, 'a placeholder has no role');
  const wantsIndex = role === 'tangent' || role === 'arg';
  if (wantsIndex && roleIndex === undefined)
    throw lintError('roles', node, `a placeholder of role ${role} has no index`);
  if (!wantsIndex && roleName === undefined)
    throw lintError('roles', node, `a placeholder of role ${role} has no role name`);
  if (role === 'state' && stateName === undefined)
    throw lintError('roles', node, 'a state placeholder does not say which state');
  if (roleName === undefined || wantsIndex || role === 'state') return;
  const twin = roleNames.get(roleName);
  if (twin !== undefined)
    throw lintError(
      'roles',
      node,
      `is called '${roleName}', as ${twin.name} is already`,
      'give one of them another role name',
    );
  roleNames.set(roleName, node);
}

function checkControl(node: Node, graph: Graph, typeOf: (name: string) => ValueType): void {
  let control;
  try {
    control = controlCall(node, graph.subgraphs, typeOf);
  } catch (error) {
    if (error instanceof ShardwrightError) throw error;
    throw lintError('bodies', node, messageOf(error));
  }
  if (control === undefined) return;
  for (const body of control.bodies) {
    const wanted = placeholdersOf(body.graph);
    if (wanted.length !== body.inputs.length)
      throw lintError(
        'bodies',
        node,
        `@${body.name} takes ${wanted.length} inputs, the call gives ${body.inputs.length}`,
      );
    wanted.forEach((placeholder, i) => {
      if (!sameType(placeholder.type, body.inputs[i]))
        throw lintError(
          'bodies',
          node,
          `input ${i} of @${body.name} is ${typeText(placeholder.type)}, the call gives ` +
            `${typeText(body.inputs[i])}`,
        );
    });
  }
}

function checkOutputs(
  graph: Graph,
  defined: ReadonlyMap<string, Node>,
  roleNames: ReadonlyMap<string, Node>,
): void {
  const states = new Map<string, Node>();
  for (const node of graph.nodes) {
    if (node.kind !== 'placeholder') break;
    if (node.meta.role === 'state')
      states.set(`${node.meta.roleName} ${node.meta.stateName}`, node);
  }
  const seen = new Set<string>();
  for (const output of graph.outputs) {
    const value = output.value === null ? undefined : defined.get(output.value);
    if (output.value !== null && value === undefined)
      throw undefinedOutput(output.value, graph.name, defined);
    const slot = slotName(output);
    if (seen.has(slot))
      throw lintError('outputs', value, `graph ${graph.name} returns '${slot}' twice`);
    seen.add(slot);
    if (output.role === 'output') {
      if (output.index === undefined)
        throw lintError('outputs', value, `an output of graph ${graph.name} has no index`);
      continue;
    }
    const target =
      output.role === 'newstate'
        ? states.get(`${output.of} ${output.stateName}`)
        : roleNames.get(output.of ?? '');
    if (target === undefined)
      throw lintError(
        'outputs',
        value,
        `output '${slot}' of graph ${graph.name} belongs to no placeholder`,
      );
    if (value === undefined) continue;
    if (
      !sameType(value.type, target.type) &&
      !(output.role === 'grad' && isWidened(value.type, target.type))
    )
      throw lintError(
        output.role === 'grad' ? 'gradients' : 'outputs',
        value,
        `${slot} has type ${typeText(value.type)}, its placeholder ${target.name} has ` +
          `${typeText(target.type)}`,
        output.role === 'grad'
          ? 'shape and dtype must be equal, or the gradient is float32 of a narrower parameter'
          : 'shape and dtype must be equal',
      );
  }
}

function slotName(output: Output): string {
  if (output.role === 'output') return `output ${output.index}`;
  return output.role === 'newstate'
    ? `newstate ${output.of} ${output.stateName}`
    : `${output.role} ${output.of}`;
}

/** Tells whether a gradient is added up in float32 for a parameter of 16 bits. */
function isWidened(gradient: ValueType, parameter: ValueType): boolean {
  if (gradient.kind !== 'tensor' || parameter.kind !== 'tensor' || gradient.dtype !== 'f32')
    return false;
  return (
    (parameter.dtype === 'bf16' || parameter.dtype === 'f16') &&
    sameShape(gradient.shape, parameter.shape)
  );
}
