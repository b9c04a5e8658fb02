{{- define "maskwright.name" -}}
{{- if contains "maskwright" .Release.Name }}{{ .Release.Name | trunc 53 | trimSuffix "-" }}{{ else }}{{ printf "%s-maskwright" .Release.Name | trunc 53 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "maskwright.selector" -}}
app.kubernetes.io/name: maskwright
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "maskwright.labels" -}}
{{ include "maskwright.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "maskwright.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default (printf "%s-%s" .Chart.AppVersion (ternary "gpu" "cpu" (eq .Values.device "cuda"))) }}
{{- end }}
