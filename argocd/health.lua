-- The health of all kinds for Argo CD; one script for all. See argocd/README.md.
local health = { status = "Progressing", message = "the operator has not reconciled it yet" }
if obj.metadata ~= nil and obj.metadata.deletionTimestamp ~= nil then
  health.message = "it is being deleted"
  return health
end
if obj.status == nil or obj.status.conditions == nil then
  return health
end

local conditions = {}
for _, condition in ipairs(obj.status.conditions) do
  conditions[condition.type] = condition
end

local function is(kind, status)
  return conditions[kind] ~= nil and conditions[kind].status == status
end

local function because(kind, reason)
  return conditions[kind] ~= nil and conditions[kind].reason == reason
end

local function said(kind)
  return conditions[kind].message or conditions[kind].reason or ""
end

-- Conditions of an older generation do not apply to the present spec.
local seen = obj.status.observedGeneration
if seen ~= nil and obj.metadata ~= nil and obj.metadata.generation ~= nil and seen < obj.metadata.generation then
  health.message = "the operator has not reconciled the latest change yet"
  return health
end

if (obj.spec ~= nil and (obj.spec.state == "Paused" or obj.spec.state == "Hibernated"))
    or (obj.metadata ~= nil and obj.metadata.annotations ~= nil
        and obj.metadata.annotations["quorate.dev/pause"] == "true") then
  health.status = "Suspended"
  health.message = obj.spec ~= nil and obj.spec.state == "Hibernated" and "hibernated" or "paused"
elseif is("QuorumHealthy", "False") and not is("Reconciling", "True") then
  health.status = "Degraded"
  health.message = said("QuorumHealthy")
elseif is("Stalled", "True") then
  health.status = "Degraded"
  health.message = said("Stalled")
elseif because("Ready", "NodeProblem") or because("Ready", "NodesFailed") then
  health.status = "Degraded"
  health.message = said("Ready")
elseif because("Reconciling", "StepFailed") then
  health.status = "Degraded"
  health.message = said("Reconciling")
elseif is("Reconciling", "True") then
  health.message = said("Reconciling")
elseif is("Ready", "True") then
  health.status = "Healthy"
  health.message = said("Ready")
elseif is("Ready", "False") then
  health.message = said("Ready")
end
return health
