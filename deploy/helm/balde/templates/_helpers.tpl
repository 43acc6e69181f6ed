{{/* The name of a part: RELEASE-gateway, or RELEASE-balde-gateway if the release is not called balde. */}}
{{- define "balde.name" -}}
{{- $base := ternary .root.Release.Name (printf "%s-balde" .root.Release.Name) (contains "balde" .root.Release.Name) -}}
{{- printf "%s-%s" ($base | trunc 50 | trimSuffix "-") .part -}}
{{- end -}}

{{- define "balde.selector" -}}
app.kubernetes.io/name: balde
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "balde.labels" -}}
{{ include "balde.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{/* The file of a part as a ConfigMap. */}}
{{- define "balde.config" -}}
{{- if not .values.existingConfigMap }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "balde.name" . }}
  labels: {{- include "balde.labels" . | nindent 4 }}
data:
  {{ .part }}.toml: |
    {{- required (printf "%s.config is empty: write the file %s.toml there, or name a ConfigMap in %s.existingConfigMap, or set %s.enabled to false" .part .part .part .part) .values.config | nindent 4 }}
---
{{- end }}
{{- end -}}

{{/* The pod of a part. A further service of balde needs values like those of the gateway, and `ports`,
`probes` and `env` as below. */}}
{{- define "balde.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "balde.name" . }}
  labels: {{- include "balde.labels" . | nindent 4 }}
spec:
  {{- if not (dig "autoscaling" "enabled" false .values) }}
  replicas: {{ .values.replicas }}
  {{- end }}
  selector:
    matchLabels: {{- include "balde.selector" . | nindent 6 }}
  strategy:
    rollingUpdate:
      maxUnavailable: 0
      maxSurge: 1
  template:
    metadata:
      labels:
        {{- include "balde.labels" . | nindent 8 }}
        {{- with .values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        # A changed file makes new pods.
        balde/config: {{ .values.config | sha256sum }}
        {{- with .values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      automountServiceAccountToken: false
      {{- with .root.Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 10001
        runAsGroup: 10001
        fsGroup: 10001
        seccompProfile:
          type: RuntimeDefault
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{- include "balde.selector" . | nindent 14 }}
      terminationGracePeriodSeconds: {{ .values.terminationGracePeriodSeconds }}
      containers:
        - name: {{ .part }}
          image: {{ printf "%s:%s" .root.Values.image.repository (.root.Values.image.tag | default .root.Chart.AppVersion) | quote }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args: [{{ .part }}, --config, /etc/balde/config/{{ .part }}.toml]
          env:
            {{- range $name, $secret := .env }}
            - name: {{ $name }}
              valueFrom:
                secretKeyRef:
                  name: {{ required (printf "%s needs existingSecret" $name) $secret.existingSecret }}
                  key: {{ required (printf "%s needs key" $name) $secret.key }}
            {{- end }}
          ports:
            {{- range $name, $port := .ports }}
            - name: {{ $name }}
              containerPort: {{ $port }}
            {{- end }}
          {{- toYaml .probes | nindent 10 }}
          resources: {{- toYaml .values.resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
          volumeMounts:
            - name: config
              mountPath: /etc/balde/config
              readOnly: true
            - name: tmp
              mountPath: /tmp
            {{- if .values.tls.existingSecret }}
            - name: tls
              mountPath: /etc/balde/tls
              readOnly: true
            {{- end }}
      volumes:
        - name: config
          configMap:
            name: {{ .values.existingConfigMap | default (include "balde.name" .) }}
        - name: tmp
          emptyDir:
            sizeLimit: 64Mi
        {{- if .values.tls.existingSecret }}
        - name: tls
          secret:
            secretName: {{ .values.tls.existingSecret }}
            defaultMode: 0440
        {{- end }}
      {{- with .values.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.affinity }}
      affinity: {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end -}}

{{- define "balde.service" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "balde.name" . }}
  labels: {{- include "balde.labels" . | nindent 4 }}
  {{- with .values.service.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  type: {{ .values.service.type }}
  selector: {{- include "balde.selector" . | nindent 4 }}
  ports:
    {{- range $name, $port := .values.service.ports | default (dict "http" .values.service.port) }}
    - name: {{ $name }}
      port: {{ $port }}
      targetPort: {{ $name }}
    {{- end }}
{{- end -}}

{{/* The state endpoint has a service of its own, so that a load balancer in front of the other ports does not
publish it. */}}
{{- define "balde.state-service" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "balde.name" . }}-state
  labels:
    {{- include "balde.labels" . | nindent 4 }}
    balde/metrics: "true"
spec:
  selector: {{- include "balde.selector" . | nindent 4 }}
  ports:
    - name: state
      port: 8090
      targetPort: state
{{- end -}}

{{/* /readyz: Redis, upstreams, and whether it is shutting down; asked twice within drain_delay. */}}
{{- define "balde.state-probes" -}}
readinessProbe:
  httpGet: {path: /readyz, port: state}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 1
livenessProbe:
  httpGet: {path: /healthz, port: state}
  periodSeconds: 20
  timeoutSeconds: 5
  failureThreshold: 3
{{- end -}}

{{- define "balde.pdb" -}}
{{- if .values.podDisruptionBudget.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "balde.name" . }}
  labels: {{- include "balde.labels" . | nindent 4 }}
spec:
  minAvailable: {{ .values.podDisruptionBudget.minAvailable }}
  selector:
    matchLabels: {{- include "balde.selector" . | nindent 6 }}
{{- end }}
{{- end -}}

{{- define "balde.autoscaler" -}}
{{- $part := . }}
{{- with .values.autoscaling }}
{{- if .enabled }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ include "balde.name" $part }}
  labels: {{- include "balde.labels" $part | nindent 4 }}
spec:
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: {{ include "balde.name" $part }}
  minReplicas: {{ .minReplicas }}
  maxReplicas: {{ .maxReplicas }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target:
          type: Utilization
          averageUtilization: {{ .targetCPUUtilizationPercentage }}
{{- end }}
{{- end }}
{{- end -}}
