/**
 * Writes docs/models.md from data/models.json: every model that is known by name, with the counts of its published class and the
 * source of its config. A test compares the two. Run: npx tsx scripts/docs-models.ts
 */
import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { format, resolveConfig } from 'prettier';
import { readModelConfig } from '../src/models/families.ts';
import { modelEntries, type ModelEntry } from '../src/models/registry.ts';
import { countText } from '../src/units.ts';

/** Path of the page. */
export const MODELS_PAGE = fileURLToPath(new URL('../docs/models.md', import.meta.url));

/** The page, formatted as the repository is. */
export async function modelsPage(entries: readonly ModelEntry[] = modelEntries()): Promise<string> {
  const families = new Map<string, ModelEntry[]>();
  for (const entry of entries) {
    const { type } = readModelConfig(entry.config);
    const known = families.get(type);
    if (known === undefined) families.set(type, [entry]);
    else known.push(entry);
  }
  const sections = [...families].map(([type, members]) => `## ${type}\n\n${table(members)}`);
  const text = `# Models by name

<!-- Written by scripts/docs-models.ts from data/models.json; a test compares the two. -->

${entries.length} models of ${families.size} families are known by name or by their Hugging Face id. Each is built from its config with our own operators, in
training and inference form; its parameters, counted on the graph, are those of the published class.

\`\`\`sh
npx shardwright models list
npx shardwright models show llama-3.1-8b                # sizes, where the config is from, what of it has no effect
npx shardwright plan llama-3.1-8b --training --layers 4 --batch 16 --seq 4096 --mesh dp=8,tp=8 --cluster dgx-h100
npx shardwright compare gpt2 --training --devices 8 --cluster dgx-h100
\`\`\`

A \`config.json\` of one of these families, with other sizes, is read in the same way: give its path instead of a name. An
unknown family is refused with the nearest known ones. _Config_: \`vendor\` is the vendor's own file; \`shapes\` has the fields that
decide shapes exactly, others may differ by revision. _Active_: parameters that one token meets, where experts are routed.

${sections.join('\n\n')}

## Sources

${sources(entries)}
`;
  return format(text, { ...(await resolveConfig(MODELS_PAGE)), filepath: MODELS_PAGE });
}

function table(members: readonly ModelEntry[]): string {
  const rows = members.map((entry) => {
    const { shape } = readModelConfig(entry.config).architecture;
    const heads = shape.keyHeads === shape.heads ? `${shape.heads}` : `${shape.heads} on ${shape.keyHeads}`;
    const { total, active } = entry.parameters;
    return [
      `\`${entry.name}\``,
      countText(total),
      active === undefined ? '' : countText(active),
      `${shape.layers}`,
      countText(shape.width),
      heads,
      shape.vocabulary === 0 ? '' : countText(shape.vocabulary),
      entry.hfId === undefined ? '' : `\`${entry.hfId}\``,
      entry.verbatim ? 'vendor' : 'shapes',
    ];
  });
  const head = ['name', 'parameters', 'active', 'layers', 'width', 'heads', 'vocabulary', 'Hugging Face', 'config'];
  const rule = ['---', '--:', '--:', '--:', '--:', '---', '--:', '---', '---'];
  return [head, rule, ...rows].map((row) => `| ${row.join(' | ')} |`).join('\n');
}

/** Where configs are from, each source once with the models that it gave. */
function sources(entries: readonly ModelEntry[]): string {
  const bySource = new Map<string, string[]>();
  for (const { name, source } of entries) {
    const known = bySource.get(source);
    if (known === undefined) bySource.set(source, [name]);
    else known.push(name);
  }
  return [...bySource].map(([source, names]) => `- ${source}: ${names.join(', ')}`).join('\n');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) writeFileSync(MODELS_PAGE, await modelsPage());
