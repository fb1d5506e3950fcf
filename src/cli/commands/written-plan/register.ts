/**
 * Registers the commands that read a written plan with the command line. Each loads its code when
 * it runs.
 */

import { command } from '../flags/add-command.ts';
import {
  CHECK_PLAN_COMMAND,
  DIFF_COMMAND,
  DOCTOR_COMMAND,
  EXPLAIN_COMMAND,
  EXPORT_COMMAND,
  REPORT_COMMAND,
  SIMULATE_COMMAND,
} from './flags.ts';

export const registerCheckPlan = command({
  usage: 'check-plan <plan>',
  summary: 'check a written plan: re-cost it, compare every field, replay its certificate',
  description:
    'Checks a plan folder against its own graph, request and certificate, without solving. ' +
    'It derives every field again from the graph and the request and compares, re-costs the ' +
    'plan from its placements, and replays the proof of its bound. Exit 5 where a field ' +
    'differs, with its JSON path.\n\nExample:\n  $ shardwright check-plan out/',
  flags: CHECK_PLAN_COMMAND,
  run: async (options, { io }, path: string) =>
    (await import('./check-plan.ts')).checkPlanCommand(path, options, io),
});

export const registerReport = command({
  usage: 'report <plan>',
  summary:
    'a plan or a comparison as one HTML file that opens from disk, or as Markdown, text, ' +
    'JSON or CSV',
  description:
    'Writes what a plan says: the answer, placements by layer, roofline, timeline, memory ' +
    'timeline, recipes, the program, proof, assumptions with sources. Also takes what ' +
    '`compare --json` prints.\n\nExamples:\n  $ shardwright report out/ --open\n  $ ' +
    'shardwright report out/ -o report.html\n  $ shardwright report out/ --format md',
  flags: REPORT_COMMAND,
  run: async (options, { io }, path: string) =>
    (await import('./report.ts')).reportCommand(path, options, io),
});

export const registerSimulate = command({
  usage: 'simulate <plan>',
  summary: 'the timeline of one step: compute, communication, memory, trace',
  description:
    'Plays a plan on one device, compute and communication side by side. Prints the step ' +
    'time, the exposed communication and the peak memory.\n\nExample:\n  $ shardwright ' +
    'simulate out/ --trace trace.json',
  flags: SIMULATE_COMMAND,
  run: async (options, { io }, path: string) =>
    (await import('./simulate.ts')).simulateCommand(path, options, io),
});

export const registerDoctor = command({
  usage: 'doctor <plan>',
  summary: 'a profiler trace of a real run compared with the prices of the plan',
  description:
    'Matches the calls and collectives of a traced step with those of the plan, by name and ' +
    'order. Prints where the step loses time and what would change it, measured and predicted ' +
    'seconds, and the five largest misses. Reads traces of the Python package on CPUs and GPUs. ' +
    'Give the --order and --bucket that the program was exported with.\n\nExamples:\n' +
    '  $ shardwright doctor out/ --run trace.json\n' +
    '  $ shardwright doctor out/ --run rank0.json --run rank1.json',
  flags: DOCTOR_COMMAND,
  run: async (options, { io }, path: string) =>
    (await import('./doctor.ts')).doctorCommand(path, options, io),
});

export const registerExplain = command({
  usage: 'explain <plan> <node>',
  summary: 'the reasons for the placement of a node, and the cost of others',
  description:
    'Lists the strategies of a node with their costs. With --force it solves the plan again ' +
    'with that placement, and prints the changes and their causes.\n\nExample:\n  $ ' +
    'shardwright explain out/ model.lm_head.weight --force RR',
  flags: EXPLAIN_COMMAND,
  run: async (options, { io }, path: string, node: string) =>
    (await import('./explain.ts')).explainCommand(path, node, options, io),
});

export const registerDiff = command({
  usage: 'diff <a> <b>',
  summary: 'what differs between two plans: placements, seconds, bytes, collectives',
  description:
    'Compares two plans of one model, folders or plan files.\n\nExample:\n  $ shardwright ' +
    'diff before/ after/',
  flags: DIFF_COMMAND,
  run: async (options, { io }, a: string, b: string) =>
    (await import('./diff.ts')).diffCommand(a, b, options, io),
});

export const registerExport = command({
  usage: 'export [plan]',
  summary: 'a plan as a PyTorch program, or as files for other engines',
  description:
    'Writes a plan for an engine. --target torch writes the program of each device, forward ' +
    'and backward with the collectives of the plan; the Python package runs it. A target ' +
    'that cannot express all of a plan refuses it and lists the losses; --allow-lossy writes ' +
    'the rest. Without arguments it lists the targets.\n\nExamples:\n  $ shardwright ' +
    'export\n  $ shardwright export out/ --target torch -o out/torch',
  flags: EXPORT_COMMAND,
  run: async (options, { io }, path?: string) =>
    (await import('./export.ts')).exportCommand(path, options, io),
});
