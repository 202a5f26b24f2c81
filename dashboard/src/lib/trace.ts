import { posted } from './api';

/** How long a trace waits for what it is to follow. */
export const SECONDS = 30;

/** Asks for a trace and waits for it; errors carry the gateway's words. */
export async function traced<T>(
  request: Record<string, unknown>,
  signal: AbortSignal,
): Promise<T | null> {
  let found: T | null = null;
  for await (const { event, data } of posted('trace', request, signal)) {
    if (event === 'trace') found = JSON.parse(data) as T;
  }
  return found;
}

/** Has the browser save a file. */
export function save(name: string, content: BlobPart): void {
  const anchor = document.createElement('a');
  anchor.href = URL.createObjectURL(new Blob([content]));
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 1000);
}
