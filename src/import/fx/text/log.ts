/**
 * Graphs inside the logs that torch writes: `TORCH_LOGS` (every line with a prefix) and
 * `TORCH_TRACE` (JSON lines followed by indented payloads, what tlparse reads). Frames interleave,
 * so lines are gathered per artifact and compile id.
 */

import { ShardwrightError, suggestion } from '../../../errors.ts';
import { itemAt } from '../../../item-at.ts';
import { md5 } from '../../../platform/platform.ts';
import { CHAR } from '../../../text/char.ts';
import { isJsonObject, type JsonObject, readJson } from '../../file/json.ts';

interface LogGraph {
  /** `Joint graph 0`, `__compiled_fn_1_...`, or the name of the trace artifact. */
  readonly title: string;
  /** `aot_joint_graph`, `graph_code`, ... */
  readonly artifact: string;
  /** Frame and attempt, `0/0`; empty where the line has none. */
  readonly compileId: string;
  /** Text of the graph, without prefixes. */
  readonly text: string;
  /** Line of the log of every line of `text`, 1-based. */
  readonly lines: readonly number[];
  /** Characters that the log has before every line of `text`. */
  readonly indents: readonly number[];
}

interface LogContent {
  readonly graphs: readonly LogGraph[];
  readonly notes: readonly string[];
}

const MAX_GRAPHS = 10_000;
const PREFIX = /^[VIWEC]\d{4} \d\d:\d\d:\d\d\.\d{1,9} \d{1,20} ([^\n\]]{1,4096})\] ?/;

interface Block {
  title: string;
  readonly artifact: string;
  readonly compileId: string;
  readonly text: string[];
  readonly lines: number[];
  readonly indents: number[];
  /** Before the title line, inside the graph, or behind it. */
  state: 'title' | 'graph' | 'done';
}

/**
 * Graphs of a `TORCH_LOGS` text, in the order in which they begin.
 *
 * @throws E_SYNTAX when it holds no graph, E_LIMIT for more than 10,000
 */
export function readTorchLog(text: string): LogContent {
  const open = new Map<string, Block>();
  const blocks: Block[] = [];
  eachLine(text, (line, number) => {
    const prefix = PREFIX.exec(line);
    if (prefix === null) return;
    let at = prefix[0].length;
    const id = /^\[(\d{1,9}\/\d{1,9}(?:_\d{1,9})?)\] ?/.exec(line.slice(at, at + 64));
    at += id?.[0].length ?? 0;
    const artifact = /^\[__(\w{1,64})\] ?/.exec(line.slice(at, at + 80));
    if (artifact === null) return;
    at += artifact[0].length;
    const compileId = id?.[1] ?? '';
    const key = `${artifact[1]} ${compileId}`;
    const payload = line.slice(at);
    if (payload.trim() === 'TRACED GRAPH') {
      const block: Block = {
        title: '',
        artifact: artifact[1] ?? '',
        compileId,
        text: [],
        lines: [],
        indents: [],
        state: 'title',
      };
      if (blocks.length >= MAX_GRAPHS) throw tooMany();
      blocks.push(block);
      open.set(key, block);
      return;
    }
    const block = open.get(key);
    if (block === undefined || block.state === 'done') return;
    if (block.state === 'title') {
      const title = /^\s*=+ (.{1,200}?) =+\s*$/.exec(payload);
      if (title !== null) {
        block.title = title[1] ?? '';
        return;
      }
      if (payload.trim() === '') return;
      block.state = 'graph';
    }
    // The graph ends where the metadata of its compilation begins; that is one very long line.
    if (/^\s*aot_config id:/.test(payload)) {
      block.state = 'done';
      return;
    }
    // Logs put one blank before the class line only.
    const shift = block.text.length === 0 && payload.startsWith(' ') ? 1 : 0;
    block.text.push(payload.slice(shift));
    block.lines.push(number);
    block.indents.push(at + shift);
  });
  return finish(
    blocks.filter((block) => block.text.length > 0),
    [],
    'TRACED GRAPH',
  );
}

const TRACE_KEYS = [
  'dynamo_output_graph',
  'aot_joint_graph',
  'aot_forward_graph',
  'aot_backward_graph',
  'aot_inference_graph',
  'inductor_post_grad_graph',
  'exported_program',
];

/**
 * Graphs of a `TORCH_TRACE` text. A payload whose checksum is wrong is read all the same and noted.
 *
 * @throws E_SYNTAX for a line whose JSON cannot be read or when there is no graph; E_LIMIT
 */
export function readTorchTrace(text: string): LogContent {
  const blocks: Block[] = [];
  const notes: string[] = [];
  let block: Block | undefined;
  let sum: string | undefined;
  const close = (): void => {
    if (block !== undefined && sum !== undefined) {
      const found = md5(block.text.join('\n'));
      if (found !== sum)
        notes.push(`The payload of ${block.title} fails its checksum: it may be cut or edited.`);
    }
    block = undefined;
    sum = undefined;
  };
  eachLine(text, (line, number) => {
    if (line.startsWith('\t')) {
      if (block === undefined) return;
      block.text.push(line.slice(1));
      block.lines.push(number);
      block.indents.push(1);
      return;
    }
    const prefix = PREFIX.exec(line);
    if (prefix === null) return;
    close();
    const start = prefix[0].length;
    if (!line.startsWith('{', start)) return;
    const entry = traceEntry(line, start, number);
    const artifact = TRACE_KEYS.find((key) => Object.hasOwn(entry, key));
    if (artifact === undefined || entry.has_payload === undefined) return;
    if (blocks.length >= MAX_GRAPHS) throw tooMany();
    const compileId = [entry.frame_id, entry.frame_compile_id]
      .filter((part) => typeof part === 'number')
      .join('/');
    block = {
      title: artifact,
      artifact,
      compileId,
      text: [],
      lines: [],
      indents: [],
      state: 'graph',
    };
    sum = typeof entry.has_payload === 'string' ? entry.has_payload : undefined;
    blocks.push(block);
  });
  close();
  return finish(
    blocks.filter((made) => made.text.length > 0),
    notes,
    'payload of a graph',
  );
}

function traceEntry(line: string, start: number, number: number): JsonObject {
  try {
    const entry = readJson(line.slice(start));
    if (isJsonObject(entry)) return entry;
  } catch (error) {
    if (!(error instanceof ShardwrightError)) throw error;
    const column = start + (error.details.position?.column ?? 1);
    throw new ShardwrightError(error.code, error.message, {
      ...error.details,
      position: { line: number, column },
    });
  }
  throw new ShardwrightError('E_SYNTAX', 'expected an object', {
    position: { line: number, column: start + 1 },
  });
}

function finish(blocks: readonly Block[], notes: readonly string[], what: string): LogContent {
  if (blocks.length === 0)
    throw new ShardwrightError('E_SYNTAX', `the log holds no graph: no ${what} was found in it`, {
      hint: 'log with TORCH_LOGS="aot_graphs,aot_joint_graph,graph_code", or TORCH_TRACE=DIR',
    });
  const graphs = blocks.map(({ title, artifact, compileId, text, lines, indents }) => ({
    title: title === '' ? artifact : title,
    artifact,
    compileId,
    text: text.join('\n'),
    lines,
    indents,
  }));
  return { graphs, notes };
}

/**
 * The graph that was asked for, by title, by artifact, or by both with the compile id before them
 * (`0/1 Joint graph 1`).
 *
 * @throws E_REF when the log holds several and none was asked for, or no single one fits; the
 *   message lists them
 */
export function selectGraph(content: LogContent, select: string | undefined): LogGraph {
  const { graphs } = content;
  const label = ({ title, compileId }: LogGraph): string =>
    compileId === '' ? title : `${compileId} ${title}`;
  if (select === undefined) {
    const [first, ...others] = graphs;
    if (first !== undefined && others.length === 0) return first;
    const joint = graphs.find(({ artifact }) => /joint/i.test(artifact));
    const list = graphs.slice(0, 50).map((graph) => `'${label(graph)}'`);
    throw new ShardwrightError(
      'E_REF',
      `the log holds ${graphs.length} graphs: ${list.join(', ')}`,
      {
        hint: `name one: --select ${JSON.stringify((joint ?? first)?.title)}`,
      },
    );
  }
  const wanted = select.trim();
  const fits = graphs.filter((g) =>
    [g.title, label(g), g.artifact, `${g.compileId} ${g.artifact}`].includes(wanted),
  );
  const [fit, ...more] = fits;
  if (fit !== undefined && more.length === 0) return fit;
  const several = fits.length > 1;
  throw new ShardwrightError(
    'E_REF',
    several
      ? `${fits.length} graphs of the log are called '${wanted}'`
      : `no graph of the log is called '${wanted.slice(0, 80)}'`,
    {
      hint: several
        ? `say which: ${fits
            .slice(0, 20)
            .map((g) => `'${label(g)}'`)
            .join(', ')}`
        : suggestion(wanted, graphs.map(label), 'graphs'),
    },
  );
}

/** An error in the text of a graph, told at its place in the log. */
export function inLog(error: ShardwrightError, graph: LogGraph): ShardwrightError {
  const { position } = error.details;
  if (position === undefined) return error;
  const at = Math.min(position.line, graph.lines.length) - 1;
  return new ShardwrightError(error.code, error.message, {
    ...error.details,
    position: {
      line: itemAt(graph.lines, at),
      column: position.column + itemAt(graph.indents, at),
    },
  });
}

function eachLine(text: string, visit: (line: string, number: number) => void): void {
  let number = 1;
  for (let pos = 0; pos < text.length; number++) {
    const stop = text.indexOf('\n', pos);
    const end = stop < 0 ? text.length : stop;
    visit(text.slice(pos, text.charCodeAt(end - 1) === CHAR.RETURN ? end - 1 : end), number);
    pos = end + 1;
  }
}

function tooMany(): ShardwrightError {
  return new ShardwrightError('E_LIMIT', `the log holds more than ${MAX_GRAPHS} graphs`, {
    hint: 'cut the log to the compilation you want',
  });
}
