{{- define "brokkr.name" -}}
{{- if contains "brokkr" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-brokkr" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "brokkr.selector" -}}
app.kubernetes.io/name: brokkr
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "brokkr.labels" -}}
{{ include "brokkr.selector" . }}
app.kubernetes.io/component: broker
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{/* Whether the evaluation must create objects that the values do not name. */}}
{{- define "brokkr.ownDatabase" -}}
{{- if and .Values.evaluation.enabled (not .Values.database.existingSecret.name) }}yes{{ end }}
{{- end }}
{{- define "brokkr.ownCertificate" -}}
{{- if and .Values.evaluation.enabled (not .Values.tls.existingSecret) (not .Values.tls.terminatedInFront) }}yes{{ end }}
{{- end }}

{{/* The Secrets that a broker reads. */}}
{{- define "brokkr.databaseSecret" -}}
{{- if include "brokkr.ownDatabase" . }}{{ include "brokkr.name" . }}-postgres{{ else }}{{ .Values.database.existingSecret.name }}{{ end }}
{{- end }}
{{- define "brokkr.databaseKey" -}}
{{- if include "brokkr.ownDatabase" . }}url{{ else }}{{ .Values.database.existingSecret.key }}{{ end }}
{{- end }}
{{- define "brokkr.tlsSecret" -}}
{{- if include "brokkr.ownCertificate" . }}{{ include "brokkr.name" . }}-tls{{ else }}{{ .Values.tls.existingSecret }}{{ end }}
{{- end }}

{{- define "brokkr.image" -}}
{{- with .Values.image }}{{ if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}{{ end }}
{{- end }}

{{- define "brokkr.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
