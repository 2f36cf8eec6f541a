import { expect, test } from 'vitest';

import { example } from '../test/broker';
import { messages, type Message } from './sse';

function streamOf(chunks: string[]): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  return new ReadableStream({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(encoder.encode(chunk));
      controller.close();
    },
  });
}

async function read(chunks: string[]): Promise<Message[]> {
  const all: Message[] = [];
  for await (const message of messages(streamOf(chunks))) all.push(message);
  return all;
}

test('the recorded stream is read, whatever its chunks are', async () => {
  const recorded = example<string>('GET /api/v1/events/stream');
  const [whole] = await read([recorded]);
  expect(whole).toMatchObject({ id: '1.1042.7', name: 'event' });
  expect(JSON.parse((whole as Message).data)).toMatchObject({ stack_name: 'web', transition: 'healthy' });
  const pieces = recorded.match(/[^]{1,7}/g) as string[];
  expect(await read(pieces)).toEqual([whole]);
});

test('comments and unfinished messages are not delivered', async () => {
  expect(await read([': still there\n\n', 'id: 1\ndata: a\ndata: b\n\n', 'data: unfin'])).toEqual([
    { id: '1', name: 'message', data: 'a\nb' },
  ]);
});

test('separators of lines that JSON may contain do not end a field', async () => {
  expect(await read(['data: "a\u2028b"\n\n'])).toEqual([{ id: '', name: 'message', data: '"a\u2028b"' }]);
});
