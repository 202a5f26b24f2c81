/** Requests to the API of the gateway that serves this page. */

import { messages } from './events';

/** An answer of the API that is no success, in its words. */
export class Refusal extends Error {
  constructor(
    readonly code: number,
    document: unknown,
  ) {
    const said = (document as { error?: string } | null)?.error;
    super(said ?? `the gateway answers ${code}`);
  }
}

/** Asks the API; errors carry its own words. */
export async function ask<T>(path: string, init?: RequestInit): Promise<T> {
  const answer = await fetch(path, init);
  const text = await answer.text();
  let value: unknown = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    // Not from the API: a proxy's page, or a gateway of another version.
  }
  if (answer.ok) return value as T;
  throw new Refusal(answer.status, value);
}

/** A request with a body for a path below `/api/v1/`. */
const posting = (path: string, body: unknown): [string, RequestInit] => [
  `/api/v1/${path}`,
  {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  },
];

/** Has the gateway change something; errors carry its words. */
export const change = <T>(path: string, body: unknown): Promise<T> =>
  ask<T>(...posting(path, body));

/** Asks for a stream by a request, and gives its events; errors carry the gateway's words. */
export async function* posted(
  path: string,
  request: unknown,
  signal: AbortSignal,
): AsyncGenerator<{ event: string; data: string }> {
  const [at, init] = posting(path, request);
  const answer = await fetch(at, { ...init, signal });
  if (!answer.ok) throw new Refusal(answer.status, await answer.json().catch(() => null));
  for await (const { event, data } of messages(answer)) {
    if (event === 'error') throw new Error((JSON.parse(data) as { error: string }).error);
    yield { event, data };
  }
}
