{{- define "streamjoin.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "streamjoin.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "streamjoin.labels" -}}
{{ include "streamjoin.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "streamjoin.claim" -}}
{{- .Values.persistence.existingClaim | default (printf "%s-checkpoint" (include "streamjoin.fullname" .)) -}}
{{- end }}

{{- define "streamjoin.image" -}}
image: {{ printf "%s:%s" .image.repository (.image.tag | default .version) }}
{{- with .image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end }}

{{- define "streamjoin.hardened" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* A container's probe of the service: a dict of its `path` and `root`. */}}
{{- define "streamjoin.probe" -}}
httpGet:
  path: {{ .path }}
  port: http
  {{- if .root.Values.service.tlsSecret }}
  scheme: HTTPS
  {{- end }}
periodSeconds: 10
timeoutSeconds: 5
{{- end }}

{{/* The text of the spec. The job checks all of it; a checkpoint that no volume keeps is refused here. */}}
{{- define "streamjoin.spec" -}}
{{- $spec := fromYaml (required "spec is required: --set-file spec=join.yaml" .Values.spec) -}}
{{- if hasKey $spec "Error" -}}
{{- fail (printf "spec: is not valid YAML: %s" $spec.Error) -}}
{{- end -}}
{{- $checkpoint := toString (required "spec: `checkpoint` is required" $spec.checkpoint) -}}
{{- if not (or (contains "://" $checkpoint) (contains "${" $checkpoint)) -}}
{{- if not .Values.persistence.enabled -}}
{{- fail (printf "persistence.enabled is false: the checkpoint %q is on no volume; write a URL such as s3a://bucket/path" $checkpoint) -}}
{{- end -}}
{{- if not (hasPrefix "/var/lib/streamjoin/" $checkpoint) -}}
{{- fail (printf "spec: checkpoint %q is not on the volume; write a path under /var/lib/streamjoin/, or a URL" $checkpoint) -}}
{{- end -}}
{{- end -}}
{{- .Values.spec -}}
{{- end }}
