/**
 * Edits the configuration of a trainer to another layout, and reads the result back: a file that
 * would mean anything else than the layout is none.
 */
import { ShardwrightError } from '../../errors.ts';
import { parseModelConfig } from '../../models/families.ts';
import { editLayoutFile } from '../../trainers/edit-layout-file.ts';
import type { EditedLayout } from '../../trainers/layout/edited-layout.ts';
import { readLayoutFile } from '../../trainers/read-layout-file.ts';
import type { SweepQuestion } from '../model/question.ts';
import { layoutText, type StatedLayout } from '../model/stated-layout.ts';
import { parseLayout } from './parse-layout.ts';

export class FileEditor {
  private readonly known = new Map<string, string | undefined>();

  constructor(
    private readonly file: string,
    private readonly text: string,
    private readonly question: SweepQuestion,
    private readonly current: StatedLayout,
  ) {}

  /** The file with this layout; undefined where it cannot state it. */
  edited(layout: StatedLayout): string | undefined {
    const key = layoutText(layout);
    if (!this.known.has(key)) this.known.set(key, this.checked(layout, key));
    return this.known.get(key);
  }

  private checked(layout: StatedLayout, key: string): string | undefined {
    const edited = editLayoutFile(this.text, this.whole(this.current), this.whole(layout));
    if (edited === undefined) return undefined;
    const { devices, globalBatch } = this.question;
    const model = parseModelConfig(this.question.config).architecture;
    try {
      const read = readLayoutFile(edited, { file: this.file, devices, model });
      const batch = read.globalBatch ?? globalBatch;
      const isSame = layoutText(parseLayout(read.text, devices)) === key && batch === globalBatch;
      return isSame ? edited : undefined;
    } catch (error) {
      if (error instanceof ShardwrightError) return undefined;
      throw error;
    }
  }

  private whole({ sizes, kind, tuning }: StatedLayout): EditedLayout {
    const { globalBatch } = this.question;
    const { layers } = parseModelConfig(this.question.config).architecture.shape;
    const ranks = sizes.dp_replicate * sizes.dp_shard;
    const microbatches = globalBatch / ranks / tuning.microbatch;
    return { sizes, kind, tuning, layers, microbatches, globalBatch };
  }
}
