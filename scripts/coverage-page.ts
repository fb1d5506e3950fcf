/** The page `docs/coverage.md`: sections that different counts write, each by its title. */

/**
 * The page with a section in place of the one of its title, or at its end.
 *
 * @param title text of the section's heading, which has two marks
 * @param lines what follows the heading
 */
export function withSection(page: string, title: string, lines: readonly string[]): string {
  const sections = page.split(/^(?=## )/m);
  const text = [`## ${title}`, '', ...lines, ''].join('\n');
  const at = sections.findIndex((section) => section.startsWith(`## ${title}\n`));
  if (at < 0) return `${page.trimEnd()}\n\n${text}`;
  const end = at + 1 < sections.length ? '\n' : '';
  return [...sections.slice(0, at), `${text}${end}`, ...sections.slice(at + 1)].join('');
}
