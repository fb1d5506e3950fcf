/** `simulate` plays a written plan with overlapped communication and writes the trace. */

import { builtinOperators } from '../../../ops/builtin.ts';
import { EXPORTED, type StepKeys } from '../../../plan/record/answer.ts';
import { utilizationOf } from '../../../report/analysis/streams.ts';
import { screenText } from '../../../report/text/first-screen.ts';
import { simulate, type SimulateOptions } from '../../../simulate/timeline/simulate.ts';
import { timelineTrace } from '../../../simulate/timeline/trace.ts';
import {
  bytesText,
  countedText,
  lineText,
  percentText,
  secondsText,
  shareOf,
} from '../../../units.ts';
import { checked, wholePlan } from '../../input/plan-folder.ts';
import { answer, type CliIo, EXIT } from '../../output/io.ts';
import { paintScreen } from '../../output/paint.ts';
import { tryFile, writeText } from '../../output/write-file.ts';
import type { SimulateOptions as SimulateFlags } from './flags.ts';

/** The record that `simulate --json` prints; its keys are a contract. */
export interface SimulateReport extends StepKeys {
  readonly seconds: number;
  readonly exposedCommunicationSeconds: number;
  /** Bytes at the fullest moment of the timeline. */
  readonly timelinePeakBytes: number;
  /** The plan's objective: nothing overlaps, and launches take no time. */
  readonly objectiveSeconds: number;
  /** Everything one after another, with launches. */
  readonly serialSeconds: number;
  readonly computeSeconds: number;
  readonly communicationSeconds: number;
  readonly mfu: number;
  readonly mfuConvention: string;
  /** Time of the peak and the task that starts it; null when the step begins with it. */
  readonly peakAtSeconds: number;
  readonly peakTask: string | null;
  readonly memoryByKind: Readonly<Record<string, number>>;
  /** The limit that the peak is kept within; null where no task waits for memory. */
  readonly memoryBoundBytes: number | null;
  /** Tasks that wait for that, how much longer the step is for it, and the peak if they had not. */
  readonly delayedTasks: number;
  readonly delayedSeconds: number;
  readonly unboundedPeakBytes: number;
  readonly passes: readonly string[];
  readonly notes: readonly string[];
}

/** `simulate`: plays a plan on two streams and more, and writes the trace. */
export function simulateCommand(path: string, flags: SimulateFlags, io: CliIo): number {
  const options = optionsOf(flags);
  if (flags.trace !== undefined) tryFile(flags.trace, 'trace');
  const folder = wholePlan(path);
  const { plan, program } = folder;
  const table = builtinOperators();
  checked(folder, path, table, io);
  const simulated = simulate(program, plan, { ...options, table });
  const { schedule, timeline, passes, notes, bound, step } = simulated;
  const { mfu, convention } = utilizationOf(simulated, program, table);
  const { memory } = timeline;
  const report: SimulateReport = {
    ...step,
    seconds: timeline.seconds,
    exposedCommunicationSeconds: timeline.exposedCommunicationSeconds,
    timelinePeakBytes: memory.peakBytes,
    objectiveSeconds: plan.objective.seconds,
    serialSeconds: timeline.serialSeconds,
    computeSeconds: timeline.computeSeconds,
    communicationSeconds: timeline.communicationSeconds,
    mfu,
    mfuConvention: convention,
    peakAtSeconds: memory.peakAt,
    peakTask: memory.peakTask ?? null,
    memoryByKind: memory.byKind,
    memoryBoundBytes: bound?.memoryBytes ?? null,
    delayedTasks: bound?.delayedTasks ?? 0,
    delayedSeconds: bound?.delayedSeconds ?? 0,
    unboundedPeakBytes: bound?.unboundedPeakBytes ?? memory.peakBytes,
    passes,
    notes,
  };
  answer(io, flags, report, (r) => textOf(r, flags.verbose === true), paintScreen);
  if (flags.trace !== undefined) {
    writeText(flags.trace, `${JSON.stringify(timelineTrace(schedule, timeline))}\n`, 'trace');
    io.stderr(`wrote ${flags.trace} (open it in ui.perfetto.dev or chrome://tracing)\n`);
  }
  return EXIT.ok;
}

function optionsOf(flags: SimulateFlags): SimulateOptions {
  return {
    prefetch: flags.prefetch,
    bucketBytes: flags.bucket,
    inFlightBytes: flags.inFlight,
    asyncTensor: flags.asyncTp === true,
    ...(flags.memory === 'plan' ? {} : { memoryBytes: flags.memory }),
    overlapSlowdown: flags.slowdown,
  };
}

/** Keeps a name with the words before it: it begins no line. */
const UNBROKEN = '\u00a0';

/** @param isWhole whether the notes on how it was simulated are printed, not counted */
function textOf(r: SimulateReport, isWhole: boolean): string {
  const kinds = Object.entries(r.memoryByKind).sort((a, b) => b[1] - a[1]);
  const peakTask = r.peakTask === null ? '' : `, ${lineText(r.peakTask)}`.replaceAll(' ', UNBROKEN);
  const notes =
    isWhole || r.notes.length === 0
      ? r.notes
      : [`-v prints ${countedText(r.notes.length, 'note')} on how it was simulated`];
  return screenText([
    { label: 'step time', texts: stepTexts(r) },
    {
      label: 'of it',
      texts: [
        `compute ${secondsText(r.computeSeconds)}`,
        `communication ${secondsText(r.communicationSeconds)}, ` +
          `${secondsText(r.exposedCommunicationSeconds)} exposed ` +
          `(${percentText(shareOf(r.exposedCommunicationSeconds, r.seconds))} of the step)`,
      ],
    },
    { label: 'MFU', texts: [`${percentText(r.mfu)} (${r.mfuConvention.replace(/^MFU: /, '')})`] },
    {
      label: 'memory',
      texts: [
        `${bytesText(r.timelinePeakBytes)} at ${secondsText(r.peakAtSeconds)}${peakTask}`,
        kinds.map(([kind, bytes]) => `${kind} ${bytesText(bytes)}`).join(', '),
      ],
    },
    { label: 'passes', texts: [r.passes.join('; ')] },
    ...(notes.length === 0 ? [] : [{ label: isWhole ? 'note' : 'more', texts: notes }]),
  ]);
}

/** The step of the plan, and how the timeline of the exported program stands to it. */
function stepTexts(r: SimulateReport): string[] {
  const alone =
    `${secondsText(r.serialSeconds)} one after another; objective of the plan ` +
    secondsText(r.objectiveSeconds);
  const played = `${secondsText(r.seconds)} simulated, communication overlapped`;
  if (r.trainer !== EXPORTED)
    return [
      `${secondsText(r.stepSeconds)} a training step, run by ${r.trainer}; ` +
        `${bytesText(r.peakBytes)} at the peak`,
      `the exported program, which the figures below are of: ${played}`,
      alone,
    ];
  if (r.stepSeconds === r.seconds) return [played, alone];
  return [
    `${secondsText(r.stepSeconds)} with all passes, communication overlapped`,
    `the last pass, which the figures below are of: ${played}`,
    alone,
  ];
}
