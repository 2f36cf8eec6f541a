{{/*
The files in files/ are copies of those in deploy/, which are the single source of the objects that an agent needs in its
cluster. `brokkr-system` in them is replaced with the namespace of the release.
*/}}
{{- define "brokkr-agent.file" -}}
{{ .root.Files.Get (printf "files/%s" .name) | replace "brokkr-system" .root.Release.Namespace }}
{{- end }}

{{/*
Prints the objects of a text, one document each. If `shared.create` is false, it omits the objects that all agents of a cluster
share: cluster-scoped objects without the namespace of this agent in their names.
*/}}
{{- define "brokkr-agent.objects" -}}
{{- range $text := splitList "\n---\n" .text }}
{{- $object := fromYaml $text }}
{{- $definition := eq $object.kind "CustomResourceDefinition" }}
{{- $named := hasSuffix (printf ".%s" $.root.Release.Namespace) $object.metadata.name }}
{{- $own := or $object.metadata.namespace (and $named (not $definition)) }}
{{- if or $own $.root.Values.shared.create }}
{{- /* Deleting the definition would delete all records, and with them the list of objects that the agent owns. */}}
{{- if $definition }}
{{- $_ := set $object.metadata "annotations" (dict "helm.sh/resource-policy" "keep") }}
{{- end }}
{{- if and (eq $object.kind "ConfigMap") (eq $object.metadata.name "brokkr-agent-fence") }}
{{- $accounts := list }}
{{- range $account := $.root.Values.impersonate }}
{{- $accounts = append $accounts (printf "system:serviceaccount:%s" (replace "/" ":" $account)) }}
{{- end }}
{{- $_ := set $object.data "accounts" (join " " $accounts) }}
{{- $_ := set $object.data "upgrade-repository" $.root.Values.upgrade.repository }}
{{- $_ := set $object.data "installation-digest" (include "brokkr-agent.digest" $.root) }}
{{- $_ := set $object.data "installation-flags" (include "brokkr-agent.flags" $.root) }}
{{- $_ := set $object.data "installation-release" $.root.Release.Name }}
{{- end }}
---
{{ toYaml $object }}
{{ end }}
{{- end }}
{{- end }}

{{/*
The digest of what is installed, as in crates/install/src/rights/digest.rs: a newer version of the agent compares it.
*/}}
{{- define "brokkr-agent.digest" -}}
{{- $names := list "record.yaml" "fence.yaml" "fence-agent.yaml" "account.yaml" "role-apps.yaml" }}
{{- $optional := list
      (list (eq .Values.profile "namespaces") "target-namespace.yaml")
      (list (ne .Values.profile "namespaces") "profile-apps.yaml")
      (list (eq .Values.profile "platform") "profile-platform.yaml")
      (list .Values.upgrade.repository "upgrade.yaml")
      (list .Values.impersonate "impersonate.yaml")
      (list .Values.kinds "kinds.yaml")
      (list .Values.allowRoles "allowed-roles.yaml") }}
{{- range $optional }}
{{- if index . 0 }}
{{- $names = append $names (index . 1) }}
{{- end }}
{{- end }}
{{- $text := "layout 1\n" }}
{{- range $name := $names }}
{{- $text = print $text (regexReplaceAll "(?m)^ *#.*\n" ($.Files.Get (printf "files/%s" $name)) "") }}
{{- end }}
{{- sha256sum $text }}
{{- end }}

{{/*
The flags with which `brokkr-agent install` would install the same.
*/}}
{{- define "brokkr-agent.flags" -}}
{{- $flags := list (printf "--profile=%s" .Values.profile) }}
{{- $lists := list
      (list "target-namespace" .Values.targetNamespaces)
      (list "kind" .Values.kinds)
      (list "impersonate" .Values.impersonate)
      (list "allow-role" .Values.allowRoles) }}
{{- range $lists }}
{{- if index . 1 }}
{{- $flags = append $flags (printf "--%s=%s" (index . 0) (join "," (index . 1))) }}
{{- end }}
{{- end }}
{{- with .Values.upgrade.repository }}
{{- $flags = append $flags (printf "--allow-upgrade=%s" .) }}
{{- end }}
{{- toJson $flags }}
{{- end }}
