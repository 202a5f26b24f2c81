import { posted } from './api';

/** A packet that a tap shows, with its first octets. */
export interface Tapped {
  at_us: number;
  side: string;
  link: string | null;
  len: number;
  octets: string;
}

/** What a tap shows: packets at a position of the graph, perhaps of one link. */
export interface TapRequest {
  at: string;
  side: string;
  which: { link?: string };
}

/** How a tap ended. */
export interface TapEnd {
  packets: number;
  missed: number;
}

/** Gives `take` each packet while it passes, until the tap ends; errors carry the gateway's words. */
export async function tap(
  request: TapRequest,
  signal: AbortSignal,
  take: (packet: Tapped) => void,
): Promise<TapEnd | null> {
  for await (const { event, data } of posted('tap', request, signal)) {
    if (event === 'packet') take(JSON.parse(data) as Tapped);
    if (event === 'end') return JSON.parse(data) as TapEnd;
  }
  return null;
}

/** Octets in pairs, at most so many. */
export const pairs = (octets: string, most: number): string =>
  (octets.slice(0, 2 * most).match(/../g) ?? []).join(' ') + (octets.length > 2 * most ? ' …' : '');
