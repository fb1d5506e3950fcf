/**
 * Makes a cluster file of what people have measured already: output of nccl-tests, the matrix of
 * `nvidia-smi topo -m`, logs of NCCL, runs of `ib_write_bw`, calibrations, tables of collectives
 * and cluster files, each found by its content. What was measured takes the place of what is
 * published in the base design, and each figure says which file it is from.
 */

import { ShardwrightError } from '../../../errors.ts';
import { parseJson } from '../../../text/json.ts';
import { countedText } from '../../../units.ts';
import { parseCalibration } from '../calibration.ts';
import { type CollectiveRow, collectiveRowKey, parseCollectiveTable } from '../collective-table.ts';
import { loadCluster } from '../load-cluster.ts';
import { isNcclLog, readNcclLog } from './nccl-log.ts';
import { isNcclTests, readNcclTests } from './nccl-tests.ts';
import { isPerftest, readPerftest } from './perftest.ts';
import { isTopologyMatrix, readTopologyMatrix } from './topology-matrix.ts';

/** A file by its name. */
interface MeasuredFile {
  readonly name: string;
  readonly text: string;
}

/** A cluster file, and what was made of each input, one sentence each. */
interface ImportedHardware {
  readonly file: Readonly<Record<string, unknown>>;
  readonly told: readonly string[];
}

/** Characters of one file that are read at most. */
const TEXT_LIMIT = 16 * 2 ** 20;

/**
 * @param base a node design, or the text of a cluster file; absent: that of the device that
 *   nccl-tests name
 * @throws E_CLUSTER, E_COLLECTIVES, E_CALIBRATION with file and line for what cannot be read, for a
 *   file of none of these forms and where no base is known
 */
export function importHardware(files: readonly MeasuredFile[], base?: string): ImportedHardware {
  const made = new Import(base);
  for (const file of files) made.add(file);
  return made.finish();
}

class Import {
  private readonly rows = new Map<string, CollectiveRow>();
  private readonly told: string[] = [];
  private readonly sources: Record<string, string> = {};
  private file: Record<string, unknown> = {};
  private device: string | undefined;
  private devices: number | undefined;
  private cards: number | undefined;
  private readonly rates: { readonly rate: number; readonly name: string }[] = [];
  /** The rate of a card's port, which is no measurement. */
  private ports: { readonly rate: number; readonly name: string } | undefined;

  constructor(private readonly base: string | undefined) {}

  add({ name, text }: MeasuredFile): void {
    if (text.length > TEXT_LIMIT)
      throw new ShardwrightError(
        'E_CLUSTER',
        `the file has ${text.length} characters; at most ${TEXT_LIMIT} are read`,
        { file: name },
      );
    if (text.trimStart().startsWith('{')) this.addJson(name, text);
    else if (isNcclTests(text)) {
      this.addTests(name, text);
      if (isNcclLog(text)) this.addLog(name, text, false);
    } else if (isNcclLog(text)) this.addLog(name, text, true);
    else if (isTopologyMatrix(text)) this.addMatrix(name, text);
    else if (isPerftest(text)) this.addRate(name, text);
    else if (/^\s*Group\s+Size\s+Collective\b/.test(text))
      this.addRows(
        parseCollectiveTable(text).map((row) => ({ ...row, source: `table ${name}` })),
        name,
      );
    else
      throw new ShardwrightError('E_CLUSTER', 'the file is of no form that is read', {
        file: name,
        hint:
          'give output of nccl-tests, nvidia-smi topo -m or ib_write_bw, a log of NCCL, a ' +
          'calibration, a table of collectives or a cluster file.',
      });
  }

  private addJson(name: string, text: string): void {
    const json = parsed(name, text);
    if ('version' in json && 'device' in json) {
      this.file.calibration = { ...parseCalibration(text), kernels: [] };
      this.told.push(`${name}: kernels of ${String(json.device)}.`);
      return;
    }
    loadCluster(text);
    const { collectiveTable, ...rest } = json;
    this.file = { ...this.file, ...rest };
    this.told.push(`${name}: a cluster, which the other files change.`);
    if (Array.isArray(collectiveTable)) this.addRows(collectiveTable as CollectiveRow[], name);
  }

  private addTests(name: string, text: string): void {
    const { rows, device, told } = readNcclTests(text, name);
    this.device ??= device;
    this.told.push(...told);
    this.addRows(rows, name);
  }

  private addRows(rows: readonly CollectiveRow[], name: string): void {
    for (const row of rows) {
      const key = collectiveRowKey(row);
      if (this.rows.has(key)) this.told.push(`${name}: ${key} replaces that of an earlier file.`);
      this.rows.set(key, row);
    }
    const sizes = rows.reduce((sum, row) => sum + row.bytes.length, 0);
    const groups = [
      ...new Set(rows.map((row) => `${row.collective} (${row.group}, ${row.devices})`)),
    ];
    if (rows.length > 0)
      this.told.push(`${name}: ${countedText(sizes, 'time')} of ${groups.join(', ')}.`);
  }

  private addMatrix(name: string, text: string): void {
    const { devices, nvlinks, worst, cards, cardsPerDevice } = readTopologyMatrix(text, name);
    this.devices = devices;
    this.cards = cardsPerDevice > 0 ? cardsPerDevice : undefined;
    this.sources.devicesPerHost = `nvidia-smi topo -m, ${name}`;
    const joined =
      worst === undefined
        ? `each pair by ${countedText(nvlinks, 'NVLink')}`
        : `some pairs by ${worst} and no NVLink`;
    this.told.push(
      `${name}: ${countedText(devices, 'device')} in a host, ${joined}, ` +
        `${countedText(cards, 'network card')}` +
        `${cards === 0 ? '' : `, ${cardsPerDevice} of them nearest to each device`}. ` +
        "A matrix has no rates: those inside a host are the base design's.",
    );
  }

  private addLog(name: string, text: string, isAlone: boolean): void {
    const { devices, cards, bytesPerSecond: rate, network, version } = readNcclLog(text);
    if (devices === undefined && cards === undefined && network === undefined) {
      if (!isAlone) return;
      throw new ShardwrightError('E_CLUSTER', 'the log has neither devices, cards nor a network', {
        file: name,
        hint:
          'keep the lines from the start of the program on; ' +
          'NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH prints them.',
      });
    }
    if (devices !== undefined) {
      this.devices = devices;
      this.sources.devicesPerHost = `log of NCCL, ${name}`;
    }
    if (devices !== undefined && cards !== undefined) this.cards = cards / devices;
    if (rate !== undefined && cards !== undefined) this.ports = { rate, name };
    const facts = [
      ...(devices === undefined ? [] : [`${countedText(devices, 'device')} in a host`]),
      ...(cards === undefined ? [] : [`${countedText(cards, 'network card')}`]),
      ...(network === undefined ? [] : [`network ${network}`]),
      ...(version === undefined ? [] : [`NCCL ${version}`]),
    ];
    this.told.push(
      `${name}: ${facts.join(', ')}.` +
        (network === 'Socket'
          ? ' Sockets are slower than the network cards of a base design: give its times, too.'
          : ''),
    );
  }

  private addRate(name: string, text: string): void {
    const { bytesPerSecond, device, isBidirectional } = readPerftest(text, name);
    this.rates.push({ rate: bytesPerSecond, name });
    this.told.push(
      `${name}: ${(bytesPerSecond / 1e9).toFixed(2)} GB/s one way` +
        `${device === undefined ? '' : ` on ${device}`}` +
        `${isBidirectional ? ', half of what both ways took together' : ''}.`,
    );
  }

  finish(): ImportedHardware {
    const base = this.baseFile();
    const { cards = 1 } = this;
    const change: Record<string, unknown> = {};
    if (this.devices !== undefined) change.devicesPerHost = this.devices;
    const inter = typeof base.inter === 'object' ? base.inter : {};
    if (this.rates.length === 0 && this.ports !== undefined) {
      const perDevice = this.ports.rate * cards;
      change.inter = { ...inter, bytesPerSecond: perDevice };
      this.sources.inter = `ports of the network cards, log of NCCL, ${this.ports.name}`;
      this.told.push(
        `A device has ${(perDevice / 1e9).toFixed(2)} GB/s between hosts, by the ports of ` +
          `${countedText(cards, 'network card')}; ib_write_bw measures what they give.`,
      );
    }
    if (this.rates.length > 0) {
      const rates = this.rates.map(({ rate }) => rate).sort((a, b) => a - b);
      const rate = rates[(rates.length - 1) >> 1];
      change.inter = { ...inter, bytesPerSecond: rate * cards, efficiency: 1 };
      const names = this.rates.map(({ name }) => name).join(', ');
      this.sources.inter = `bandwidth of a network card, ${names}`;
      const counted =
        this.cards === undefined
          ? 'one network card is assumed, topo -m would tell'
          : countedText(cards, 'network card');
      this.told.push(
        `A device has ${((rate * cards) / 1e9).toFixed(2)} GB/s between hosts: ${counted}.`,
      );
    }
    if (this.rows.size > 0) change.collectiveTable = [...this.rows.values()];
    const given = typeof base.sources === 'object' ? base.sources : {};
    const file = { ...base, ...change, sources: { ...given, ...this.sources } };
    loadCluster(JSON.stringify(file));
    return { file, told: this.told };
  }

  /** The cluster that the files change. */
  private baseFile(): Record<string, unknown> {
    const { base } = this;
    if (base !== undefined) {
      const own = base.trim().startsWith('{')
        ? parsed('--base', base)
        : { base: loadCluster(base).id };
      return { ...own, ...this.file };
    }
    if ('base' in this.file || 'peakFlopsPerSecond' in this.file) return this.file;
    const known = designOf(this.device);
    if (known === undefined)
      throw new ShardwrightError(
        'E_CLUSTER',
        this.device === undefined
          ? 'the files do not say which devices the cluster has'
          : `no node design has the device '${this.device}'`,
        { hint: 'give --base with a node design (`shardwright hardware`) or a cluster file.' },
      );
    this.told.push(
      `All other figures are those of ${known}, by the device '${this.device ?? ''}'.`,
    );
    return { base: known, ...this.file };
  }
}

function parsed(name: string, text: string): Record<string, unknown> {
  const words = { what: 'the file', code: 'E_CLUSTER' };
  return parseJson(text, { file: name }, words) as Record<string, unknown>;
}

/** The usual node design of a device as its driver names it: `NVIDIA A100-SXM4-80GB`. */
function designOf(device: string | undefined): string | undefined {
  const words = (device ?? '').replace(/^(?:NVIDIA|AMD|Tesla)\s+/i, '').split(/\s+/);
  const [first = ''] = words;
  for (const name of [words.slice(0, 2).join('-'), first, first.split('-')[0]]) {
    if (name === '') continue;
    try {
      return loadCluster(name).id;
    } catch (error) {
      if (!(error instanceof ShardwrightError)) throw error;
    }
  }
  return undefined;
}
