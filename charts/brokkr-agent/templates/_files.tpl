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
{{- end }}
---
{{ toYaml $object }}
{{ end }}
{{- end }}
{{- end }}
