/** Offers files for download; several files come as one zip. */
import { zipSync } from 'fflate';

export function download(
  name: string,
  content: Uint8Array | string,
  type = 'application/octet-stream',
): void {
  const address = URL.createObjectURL(new Blob([content as BlobPart], { type }));
  const link = document.createElement('a');
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** One file as it is, several as a zip; equal files give equal bytes. */
export function downloadFiles(name: string, files: Readonly<Record<string, Uint8Array>>): void {
  const names = Object.keys(files);
  if (names.length === 1) download(names[0], files[names[0]]);
  else download(`${name}.zip`, zipSync({ ...files }, { mtime: '1980-01-01' }), 'application/zip');
}
