/**
 * The page's worker: takes questions one after another and answers them with the planner itself.
 */
import {
  clusterNames,
  EXPORT_TARGETS,
  loadCluster,
  modelEntries,
  OPTIMIZERS,
  PIPELINE_SCHEDULES,
  ShardwrightError,
  VERSION,
} from '../../src/entries/page.ts';
import type { Answers, Ask, Fault, Kind, Reply } from '../protocol.ts';
import { draw } from './draw.ts';
import { graphOf } from './model.ts';
import { explain, exported, force, type Listener, moveWhatIf, plan, planFolder } from './plan.ts';
import { stagedQuestion } from './stages.ts';
import { StopSignal } from './stop-signal.ts';
import { runsAsThread, startThreadsAsWorkers } from './threads.ts';

const say = (reply: Reply): void => self.postMessage(reply);

/** Questions wait for one another: the planner keeps one plan. */
let before: Promise<unknown> = Promise.resolve();

if (!runsAsThread()) {
  startThreadsAsWorkers();
  self.addEventListener(
    'message',
    ({ data }: MessageEvent<{ readonly id: number; readonly ask: Ask }>) => {
      const { id, ask } = data;
      before = before.then(() =>
        answer(id, ask).then(
          (found) => say({ id, kind: 'answer', answer: found }),
          (error: unknown) => say({ id, kind: 'fault', fault: faultOf(error) }),
        ),
      );
    },
  );
}

async function answer(id: number, ask: Ask): Promise<Answers[Kind]> {
  const listener: Listener = {
    moment: (moment) => say({ id, kind: 'moment', moment }),
    step: (text) => say({ id, kind: 'step', text }),
    summary: (text) => say({ id, kind: 'summary', text }),
  };
  switch (ask.kind) {
    case 'lists':
      return {
        models: modelEntries().map(({ name }) => name),
        clusters: Object.fromEntries(clusterNames().map((name) => [name, hostOf(name)])),
        optimizers: OPTIMIZERS,
        schedules: PIPELINE_SCHEDULES,
        targets: EXPORT_TARGETS.map(({ name }) => name),
        version: VERSION,
      };
    case 'plan': {
      listener.step('Reading the model');
      const { question, file, program } = ask;
      const staged = stagedQuestion(question);
      const asked =
        program === undefined
          ? await graphOf(staged.question, file)
          : {
              ...(await (await import('./program.ts')).traced(program, staged.question.mesh)),
              isNamed: false,
              isTraced: true,
            };
      return plan(asked, question, staged, new StopSignal(ask.stop), listener);
    }
    case 'compare':
      return (await import('./compare.ts')).compare(
        ask.question,
        new StopSignal(ask.stop),
        listener.step,
      );
    case 'tune':
      return (await import('./tune.ts')).tune(
        ask.question,
        new StopSignal(ask.stop),
        listener.step,
      );
    case 'famous':
      return (await import('./famous.ts')).famousRuns();
    case 'predict':
      return (await import('./famous.ts')).predicted(ask.run);
    case 'explain':
      return explain(ask.node);
    case 'undo':
    case 'redo':
      return moveWhatIf(ask.kind);
    case 'force':
      return force(ask.node, ask.placement, new StopSignal(ask.stop), listener);
    case 'folder':
      return planFolder();
    case 'export':
      return exported(ask.target);
    case 'draw':
      return draw(ask.drawing);
    case 'program':
      return (await import('./program.ts')).checked(ask.text, ask.mesh);
  }
}

function hostOf(name: string): number {
  const { usedPerHost, devicesPerHost } = loadCluster(name);
  return usedPerHost ?? devicesPerHost;
}

function faultOf(error: unknown): Fault {
  if (!(error instanceof ShardwrightError)) {
    const message = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
    return {
      code: 'E_INTERNAL',
      message,
      hint: 'This is a defect of Shardwright. Please report it with the model.',
    };
  }
  const { hint = '', position } = error.details;
  return { code: error.code, message: error.headline, hint, ...(position ?? {}) };
}
