// The state of the installation.

import { useQuery } from '@tanstack/react-query';

import { systemQuery } from '../../api/admin';
import type { System as SystemData } from '../../api/types';
import { dateTime, number } from '../../lib/format';
import { views } from '../../lib/views';
import { Loaded } from '../../ui/Loaded';
import { Facts, Page, Section } from '../../ui/Page';
import { words } from '../../words';

const say = words.admin.system;

export function System() {
  const query = useQuery(systemQuery());
  return (
    <Page title={words.admin.tabs.system} view={views.system()}>
      <Loaded query={query}>{(data) => <Body system={data} />}</Loaded>
    </Page>
  );
}

function Body({ system }: { system: SystemData }) {
  const { hold } = system;
  return (
    <>
      <Facts
        items={[
          [say.version, system.version],
          [say.installation, system.installation],
          [say.hold, hold == null ? say.notOnHold : say.holdSince(dateTime(hold.since), hold.because)],
          [say.protocol, say.protocols(system.oldest_protocol, system.protocol)],
          [say.epoch, String(system.epoch)],
          [say.position, system.position],
          [say.toReport, number(system.agents_to_report)],
          [say.ahead, number(system.stacks_ahead)],
          [say.unknown, number(system.stacks_unknown)],
          [say.unconfirmed, number(system.stacks_unconfirmed)],
          ...(system.database_role == null ? [] : [[say.role, system.database_role.name] as const]),
        ]}
      />
      <Section title={say.agentVersions}>
        <Facts
          items={(system.agent_versions ?? []).map(({ version, agents }) => [
            version ?? say.unknownVersion,
            number(agents),
          ])}
        />
      </Section>
      {system.raised.length > 0 && (
        <Section title={say.raised}>
          <Facts
            items={system.raised.map((one) => [dateTime(one.raised_at), `${one.raised_by}: ${one.reason ?? ''}`])}
          />
        </Section>
      )}
    </>
  );
}
