/**
 * Compares a real run with its plan: it matches the calls and collectives of a profiler trace of
 * one step of `program.py` (Kineto's Chrome JSON, one rank) one by one by name and order, with
 * measured and predicted seconds. Source: the trace that `torch.profiler` exports; on gloo,
 * collectives are its `gloo:...` ranges.
 */
import type { ExportSource, OrderOptions } from '../../../backend/target.ts';
import type { CollectiveModel } from '../../../cost/collective-model.ts';
import { ShardwrightError } from '../../../errors.ts';
import type { Node } from '../../../graph/types.ts';
import { collectiveKind } from '../../../lower/program/collectives.ts';
import type { DeviceProgram } from '../../../lower/program/program.ts';
import type { Plan } from '../../../plan/record/types.ts';
import { chooseOrder, splitInOrder } from '../order.ts';
import { operatorText } from '../program/arguments.ts';
import { type CollectiveRow, collectiveRows } from '../program/collective-list.ts';
import { callLines, type SplitProgram } from '../program/split.ts';
import { DeviceTimes, type TraceSpan } from './trace.ts';

/** One call of the program, or one collective. */
export interface MeasuredCall {
  readonly node: string;
  readonly op: string;
  readonly kind: 'compute' | 'collective';
  readonly measuredSeconds: number;
  /**
   * Null of calls that the plan does not price by themselves: copies around collectives and
   * rewritten calls.
   */
  readonly predictedSeconds: number | null;
  /** The mesh dims over which a collective runs. */
  readonly meshDims?: readonly string[];
}

/** The record that `doctor --json` prints; its keys are a contract. */
export interface RunReport {
  /** Steps in the trace; the last one is compared. */
  readonly steps: number;
  /** The clock of the calls: the processor, or the kernels that they launched. */
  readonly timed: 'processor' | 'kernels';
  /**
   * From the start of the forward to the end of the backward program; of kernels, from the first to
   * the end of the last.
   */
  readonly measuredSeconds: number;
  readonly predictedSeconds: number;
  readonly computeSeconds: { readonly measured: number; readonly predicted: number };
  readonly collectiveSeconds: { readonly measured: number; readonly predicted: number };
  /**
   * Time that the program waited for collectives; of kernels, in which none but those of
   * collectives ran.
   */
  readonly waitedSeconds: number;
  /** Time in which the device ran nothing at all; 0 where the processor is timed. */
  readonly idleSeconds: number;
  readonly byOp: readonly {
    readonly op: string;
    readonly calls: number;
    readonly measuredSeconds: number;
    readonly predictedSeconds: number;
  }[];
  /** The calls whose measured time is farthest from the predicted one. */
  readonly misses: readonly MeasuredCall[];
  readonly calls: readonly MeasuredCall[];
}

const MICRO = 1e-6;
/**
 * The categories of the ranges of a step in a trace: functions of autograd, or ranges named by
 * hand.
 */
const RANGES = new Set(['cpu_op', 'user_annotation']);
const MISSES = 5;
/**
 * Calls that `program.py` makes around the calls of the graph: waits, and copies for collectives.
 */
const AROUND = new Set([
  '_c10d_functional::wait_tensor',
  'aten::contiguous',
  'aten::clone',
  'aten::div',
  'aten::reshape',
  'aten::index',
  'aten::ones',
  'aten::cat',
  'aten::narrow',
  'aten::mul',
]);
const FUNCTIONAL: Readonly<Record<string, string>> = {
  all_reduce: 'all_reduce',
  all_gather: 'all_gather_into_tensor',
  reduce_scatter: 'reduce_scatter_tensor',
  all_to_all: 'all_to_all_single',
  collective_permute: 'all_to_all_single',
};

/**
 * Matches the last step of a trace with the program of a plan.
 *
 * @param plan with its prices, whose objective is the predicted step
 * @param options with which the program was exported
 * @throws E_TRACE for a trace without a step, or of another program: with the first call that
 *   differs
 */
export function compareRun(
  source: ExportSource,
  plan: Plan,
  model: CollectiveModel,
  spans: readonly TraceSpan[],
  options: OrderOptions = {},
): RunReport {
  const program = source.lowered();
  const split = splitInOrder(program, chooseOrder(source, options).order);
  const { forward, backward, steps } = lastStep(spans);
  if (backward === undefined && split.backward.length > 0) throw noStep();
  const passes = backward === undefined ? [forward] : [forward, backward];
  const device = spans.some(({ cat }) => cat === 'kernel')
    ? new DeviceTimes(spans, passes)
    : undefined;
  const step = new StepMatch(program, split, { plan, model, spans, passes, device });
  step.match(split.forward, forward);
  if (backward !== undefined) step.match(split.backward, backward);
  const { calls } = step;
  const measured = device === undefined ? passes.reduce((s, { dur }) => s + dur, 0) : device.step;
  const waited = device === undefined ? step.waited : device.step - device.busy;
  return {
    steps,
    timed: device === undefined ? 'processor' : 'kernels',
    measuredSeconds: measured * MICRO,
    predictedSeconds: plan.objective.seconds,
    computeSeconds: sums(calls, 'compute'),
    collectiveSeconds: sums(calls, 'collective'),
    waitedSeconds: waited * MICRO,
    idleSeconds: (device?.idle ?? 0) * MICRO,
    byOp: byOp(calls),
    misses: largestMisses(calls),
    calls,
  };
}

interface TracedStep {
  readonly forward: TraceSpan;
  readonly backward: TraceSpan | undefined;
  /** The end of the step before, in the trace's microseconds; undefined where there is none. */
  readonly previousEnd: number | undefined;
  /** Steps in the trace. */
  readonly steps: number;
}

/** The last step of a trace. @throws E_TRACE where it has none */
export function lastStep(spans: readonly TraceSpan[]): TracedStep {
  const ranges = (name: string): TraceSpan[] =>
    spans.filter((span) => span.name === name && RANGES.has(span.cat));
  const forwards = ranges('Step');
  const forward = forwards.at(-1);
  if (forward === undefined) throw noStep();
  const backwards = ranges('StepBackward');
  const before = [...forwards.slice(0, -1), ...backwards].filter(({ ts }) => ts < forward.ts);
  return {
    forward,
    backward: backwards.find(({ ts }) => ts > forward.ts),
    previousEnd:
      before.length === 0 ? undefined : Math.max(...before.map(({ ts, dur }) => ts + dur)),
    steps: forwards.length,
  };
}

function noStep(): ShardwrightError {
  return new ShardwrightError('E_TRACE', 'the trace has no whole step of a parallel module', {
    hint:
      'profile at least one forward and backward call of what shardwright.parallelize gave, ' +
      'with ProfilerActivity.CPU.',
  });
}

interface TracedRun {
  readonly plan: Plan;
  readonly model: CollectiveModel;
  readonly spans: readonly TraceSpan[];
  /** The forward program and, where there is one, the backward program. */
  readonly passes: readonly TraceSpan[];
  /** Times of kernels, where the trace has them. */
  readonly device: DeviceTimes | undefined;
}

/** Finds the calls of a program among the events of a trace, one by one in their order. */
class StepMatch {
  readonly calls: MeasuredCall[] = [];
  /** Microseconds that the program waited for collectives. */
  waited = 0;
  private readonly collectives: ReadonlyMap<string, CollectiveRow>;
  private readonly priced: ReadonlyMap<string, number>;
  /** Ranges of collectives on the processor that no call has taken. */
  private readonly ranges: TraceSpan[];

  constructor(
    private readonly program: DeviceProgram,
    private readonly split: SplitProgram,
    private readonly run: TracedRun,
  ) {
    const { plan, spans, passes } = run;
    this.collectives = new Map(collectiveRows(program, split).map((row) => [row.node, row]));
    this.priced = new Map(plan.nodes.map((node) => [node.name, node.seconds]));
    const end = Math.max(...passes.map(({ ts, dur }) => ts + dur));
    this.ranges = spans.filter(
      ({ name, ts }) => /^(gloo|nccl):/.test(name) && ts >= passes[0].ts && ts <= end,
    );
  }

  /** @throws E_TRACE with the first call that differs */
  match(nodes: readonly Node[], within: TraceSpan): void {
    const events = outermost(this.run.spans, within);
    let k = 0;
    for (const line of callLines(nodes, this.split.buckets)) {
      const [node] = line;
      if (node.target === 'operator.getitem') continue;
      const row = this.collectives.get(node.name);
      const op = opName(node, line.length > 1);
      // The program may write over an operand that nobody else reads (`inPlaceCalls`).
      const isIt = ({ name }: TraceSpan): boolean =>
        isCall(name, op, row !== undefined) || (row === undefined && name === `${op}_`);
      while (k < events.length && !isIt(events[k]) && AROUND.has(events[k].name))
        this.noteWait(events[k++]);
      const found = events[k++] as TraceSpan | undefined;
      if (found === undefined || !isIt(found)) throw otherProgram(node, op, found);
      this.calls.push(
        row === undefined ? this.compute(node, op, found) : this.collective(row, op, found),
      );
    }
    for (const event of events.slice(k)) this.noteWait(event);
  }

  private noteWait({ name, dur }: TraceSpan): void {
    if (name === '_c10d_functional::wait_tensor') this.waited += dur;
  }

  private compute({ name }: Node, op: string, found: TraceSpan): MeasuredCall {
    return {
      node: name,
      op,
      kind: 'compute',
      measuredSeconds: (this.run.device?.of(found) ?? found.dur) * MICRO,
      predictedSeconds: this.priced.get(name) ?? null,
    };
  }

  private collective(row: CollectiveRow, op: string, found: TraceSpan): MeasuredCall {
    const { device, model } = this.run;
    const range = device === undefined ? takeRange(this.ranges, row.kind, found.ts) : undefined;
    const dims = row.meshDims.map((name) => this.program.mesh.indexOf(name));
    return {
      node: row.node,
      op,
      kind: 'collective',
      measuredSeconds: (device?.of(found) ?? (range ?? found).dur) * MICRO,
      predictedSeconds: model.seconds(row.kind, row.bytes, dims),
      meshDims: row.meshDims,
    };
  }
}

function otherProgram(node: Node, op: string, found: TraceSpan | undefined): ShardwrightError {
  return new ShardwrightError(
    'E_TRACE',
    `the trace has ${found?.name ?? 'nothing'} where the program calls ${op}`,
    {
      node: node.name,
      hint:
        'profile a run of this plan, and give the --order and --bucket that it was ' +
        'exported with; a compiled program (compile=True) has other calls.',
    },
  );
}

function sums(
  calls: readonly MeasuredCall[],
  kind: MeasuredCall['kind'],
): RunReport['computeSeconds'] {
  const own = calls.filter((call) => call.kind === kind);
  return {
    measured: own.reduce((s, c) => s + c.measuredSeconds, 0),
    predicted: own.reduce((s, c) => s + (c.predictedSeconds ?? 0), 0),
  };
}

function largestMisses(calls: readonly MeasuredCall[]): MeasuredCall[] {
  const miss = ({ measuredSeconds, predictedSeconds }: MeasuredCall): number =>
    Math.abs(measuredSeconds - (predictedSeconds ?? 0));
  return calls
    .filter((call) => call.predictedSeconds !== null)
    .sort((a, b) => miss(b) - miss(a))
    .slice(0, MISSES);
}

/**
 * Tells whether an event of a trace is a call of the program; an event of a collective has its name
 * in a namespace of its own.
 */
function isCall(name: string, op: string, isCollective: boolean): boolean {
  return isCollective ? name.split('::')[1] === op.split('::')[1] : name === op;
}

/** Name of a call in a trace: `aten::mm` of `aten.mm.default`. */
function opName(node: Node, isBucket: boolean): string {
  const kind = collectiveKind(node.target);
  if (kind !== undefined)
    return `_c10d_functional::${FUNCTIONAL[kind]}${isBucket ? '_coalesced' : ''}`;
  const [space, name] = operatorText(node).replace('torch.ops.', '').split('.');
  return `${space}::${name}`;
}

/** Calls of operators inside a span that no other operator makes. */
function outermost(spans: readonly TraceSpan[], { ts, dur, tid }: TraceSpan): TraceSpan[] {
  let until = -Infinity;
  return spans.filter((span) => {
    if (span.cat !== 'cpu_op' || span.tid !== tid || span.ts < ts || span.ts + span.dur > ts + dur)
      return false;
    if (!/^(?!autograd::)\w+::\w+$/.test(span.name) || span.ts < until) return false;
    until = span.ts + span.dur;
    return true;
  });
}

/**
 * The first free range that began after a collective was called; gloo reduces and scatters by an
 * all_reduce.
 */
function takeRange(ranges: TraceSpan[], kind: string, from: number): TraceSpan | undefined {
  const names =
    kind === 'collective_permute'
      ? ['all_to_all']
      : kind === 'reduce_scatter'
        ? ['reduce_scatter', '_reduce_scatter_base', 'all_reduce']
        : [kind];
  const at = ranges.findIndex(({ name, ts }) => ts >= from && names.includes(name.split(':')[1]));
  return at < 0 ? undefined : ranges.splice(at, 1)[0];
}

function byOp(calls: readonly MeasuredCall[]): RunReport['byOp'] {
  const sums = new Map<
    string,
    { op: string; calls: number; measuredSeconds: number; predictedSeconds: number }
  >();
  for (const { op, measuredSeconds, predictedSeconds } of calls) {
    const own = sums.get(op) ?? { op, calls: 0, measuredSeconds: 0, predictedSeconds: 0 };
    own.calls++;
    own.measuredSeconds += measuredSeconds;
    own.predictedSeconds += predictedSeconds ?? 0;
    sums.set(op, own);
  }
  return [...sums.values()].sort((a, b) => b.measuredSeconds - a.measuredSeconds);
}
