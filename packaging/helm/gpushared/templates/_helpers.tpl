{{- define "gpushared.labels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "gpushared.image" -}}
image: {{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{/* What the pods of both DaemonSets have in common. */}}
{{- define "gpushared.placement" -}}
nodeSelector: {{- toYaml .Values.nodeSelector | nindent 2 }}
{{- if and .Values.gpu.enabled (not .Values.gpu.besideNvidiaPlugin) }}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      - matchExpressions:
        # NVIDIA's GPU operator sets this label on nodes on which it runs NVIDIA's device plugin.
        - key: nvidia.com/gpu.deploy.device-plugin
          operator: NotIn
          values: ["true"]
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- with .Values.priorityClass.name }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{- define "gpushared.confined" -}}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
{{- end }}
