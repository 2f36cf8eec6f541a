// Webhooks: create, test, disable, rotate the secret, delete; and deliveries: send again.

import { api, body } from '../../../api/client';
import type { Delivery, Webhook } from '../../../api/types';
import { number } from '../../../lib/format';
import { ActButton, ActDialog } from '../../../ui/Act';
import { AreaField, Row, SelectField, TextField } from '../../../ui/Field';
import { Mark } from '../../../ui/StateMark';
import { words } from '../../../words';

const { webhooks: say, name: nameLabel, for: named } = words.adminActs;

type Format = Webhook['format'];
const FORMATS: readonly Format[] = ['standard', 'slack', 'teams', 'pagerduty'];

export function CreateWebhook() {
  return (
    <ActButton name={say.create} needs="owner" kind="primary">
      {(close) => (
        <ActDialog
          title={say.create}
          submit={say.create}
          onClose={close}
          announced={say.created}
          run={async (values) => {
            const [events, stacks] = [values.lines('events'), values.lines('stacks', /[\n,\s]/)];
            const filter = {
              // The broker refuses a type that it does not know.
              ...(events.length > 0 && { events: events as NonNullable<Webhook['filter']['events']> }),
              ...(stacks.length > 0 && { stacks }),
              ...(values.text('selector') !== undefined && { stack_selector: values.text('selector') as string }),
            };
            return body(
              api.POST('/api/v1/webhooks', {
                body: {
                  name: values.text('name') ?? '',
                  url: values.text('url') ?? '',
                  format: values.text('format') as Format,
                  filter,
                },
              }),
            );
          }}
          secretOf={(done) => done.secret}
        >
          <p>{say.effect}</p>
          <Row>
            <TextField label={nameLabel} name="name" required />
            <TextField label={say.url} name="url" type="url" required placeholder={say.urlHint} />
            <SelectField label={say.format} name="format" choices={FORMATS.map((one) => [one, one] as const)} />
          </Row>
          <AreaField label={say.events} name="events" placeholder={say.eventsHint} />
          <Row>
            <TextField label={say.stacks} name="stacks" placeholder={say.stacksHint} />
            <TextField label={say.selector} name="selector" placeholder={words.filters.selectorHint} />
          </Row>
        </ActDialog>
      )}
    </ActButton>
  );
}

export function WebhookRowActs({ webhook, isCurrent }: { webhook: Webhook; isCurrent: boolean }) {
  const { name, enabled } = webhook;
  const path = { webhook: name };
  const shared = { needs: 'owner', isInCurrentRow: isCurrent } as const;
  const toggle = enabled ? say.disable : say.enable;
  return (
    <>
      <ActButton name={say.test} label={named(say.test, name)} {...shared}>
        {(close) => (
          <ActDialog
            title={say.testTitle(name)}
            submit={say.test}
            onClose={close}
            announced={say.tested}
            renderResult={({ delivered, status, error, millis, answer }) => (
              <p>
                <Mark tone={delivered ? 'good' : 'bad'} glyph={delivered ? '✔' : '✖'}>
                  {delivered
                    ? say.delivered(String(status), number(millis))
                    : say.failed([status, error, answer].filter(Boolean).join(' '))}
                </Mark>
              </p>
            )}
            run={async () => body(api.POST('/api/v1/webhooks/{webhook}/test', { params: { path } }))}
          >
            <p>{webhook.url}</p>
            <p>{say.testEffect}</p>
          </ActDialog>
        )}
      </ActButton>{' '}
      <ActButton name={toggle} label={named(toggle, name)} {...shared}>
        {(close) => (
          <ActDialog
            title={named(toggle, name)}
            submit={toggle}
            onClose={close}
            announced={say.toggled}
            run={async () =>
              body(api.PATCH('/api/v1/webhooks/{webhook}', { params: { path }, body: { enabled: !enabled } }))
            }
          >
            <p>{enabled ? say.disableEffect : say.enableEffect}</p>
          </ActDialog>
        )}
      </ActButton>{' '}
      <ActButton name={say.remove} label={named(say.remove, name)} {...shared}>
        {(close) => (
          <ActDialog
            title={say.removeTitle(name)}
            submit={say.remove}
            onClose={close}
            announced={say.removed}
            typed={name}
            run={async () => {
              await api.DELETE('/api/v1/webhooks/{webhook}', { params: { path } });
            }}
          >
            <p>{say.removeEffect}</p>
          </ActDialog>
        )}
      </ActButton>
    </>
  );
}

export function RotateWebhookSecret({ webhook }: { webhook: string }) {
  return (
    <ActButton name={say.rotate} needs="owner">
      {(close) => (
        <ActDialog
          title={say.rotateTitle(webhook)}
          submit={say.rotate}
          onClose={close}
          announced={say.rotated}
          run={async (values) =>
            body(
              api.POST('/api/v1/webhooks/{webhook}/rotate-secret', {
                params: { path: { webhook } },
                body: { overlap_seconds: values.duration('overlap') ?? null },
              }),
            )
          }
          secretOf={(done) => done.secret}
        >
          <TextField label={say.overlap} name="overlap" defaultValue="24h" />
        </ActDialog>
      )}
    </ActButton>
  );
}

interface ResendProps {
  webhook: string;
  delivery: Delivery;
  isCurrent: boolean;
}

export function Resend({ webhook, delivery: { id, event }, isCurrent }: ResendProps) {
  return (
    <ActButton name={say.resend} label={named(say.resend, event)} needs="owner" isInCurrentRow={isCurrent}>
      {(close) => (
        <ActDialog
          title={say.resendTitle}
          submit={say.resend}
          onClose={close}
          announced={say.resent}
          run={async () => {
            const path = { webhook, delivery: id };
            await api.POST('/api/v1/webhooks/{webhook}/deliveries/{delivery}/resend', { params: { path } });
          }}
        >
          <p>{say.resendEffect}</p>
        </ActDialog>
      )}
    </ActButton>
  );
}
