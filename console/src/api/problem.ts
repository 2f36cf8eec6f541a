// Errors of the API: problem documents (RFC 9457), and requests that got no response.

import { words } from '../words';
import type { Problem } from './types';

/** The status of an error for which no request was sent. */
const NOT_SENT = -1;

/** A failed request, with what a person needs to act on it. */
export class ApiError extends Error {
  /** 0 if there was no response, negative if nothing was sent. */
  readonly status: number;
  readonly code: string | undefined;
  readonly next: string | undefined;
  readonly requestId: string | undefined;
  readonly details: readonly string[];
  /** How many (stack, agent) pairs the change would remove; the same change with this number is accepted. */
  readonly expect: number | undefined;

  constructor(status: number, message: string, problem?: Partial<Problem>) {
    super(message);
    this.name = 'ApiError';
    this.status = status;
    this.code = problem?.code;
    this.next = problem?.next;
    this.requestId = problem?.request_id;
    this.details = problem?.errors ?? [];
    this.expect = problem?.expect ?? undefined;
  }

  get isUnauthenticated(): boolean {
    return this.status === 401;
  }

  /** Whether another attempt can succeed without a change. */
  get isTransient(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

/** Returns the error of a response that is not a success. */
export async function errorOf(response: Response): Promise<ApiError> {
  const fallback = words.errors.status(response.status);
  const requestId = response.headers.get('x-request-id') ?? undefined;
  try {
    const problem = (await response.json()) as Partial<Problem>;
    return new ApiError(response.status, problem.detail ?? fallback, { request_id: requestId, ...problem });
  } catch {
    // A proxy between the browser and the broker answered.
    return new ApiError(response.status, fallback, { request_id: requestId });
  }
}

/** Returns the error of a request without a response. */
export function unreachable(): ApiError {
  return new ApiError(0, words.errors.unreachable, { next: words.errors.unreachableNext });
}

/** Returns an error that the console finds before it sends anything. */
export function notSent(message: string, next?: string): ApiError {
  return new ApiError(NOT_SENT, message, next === undefined ? undefined : { next });
}

/** Returns any thrown value as an error of the API. What is none is an error of the console, or a part of it that is missing. */
export function asApiError(thrown: unknown): ApiError {
  if (thrown instanceof ApiError) return thrown;
  return notSent(words.errors.script(thrown instanceof Error ? thrown.message : String(thrown)), words.errors.scriptNext);
}
