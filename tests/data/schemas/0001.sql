BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num TEXT NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0001');
CREATE TABLE artifacts (
	sha256 TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	size_bytes INTEGER NOT NULL, 
	content BLOB NOT NULL, 
	CONSTRAINT pk_artifacts PRIMARY KEY (sha256)
)
 STRICT

;
INSERT INTO "artifacts" VALUES('2eb2a9493f81345cfced71a0c6fa0e3c59619f33eb765fd0929e34252fa56d3d','source',8,X'789CD3D75728C9CC494D010009E30291');
INSERT INTO "artifacts" VALUES('7c9b185f35cce03019b3c7cebdef327545fd0cfdeb1acdf7db7fd7d528c74538','module',5,X'789C4B2E4DCACC0300062E0212');
INSERT INTO "artifacts" VALUES('e7ed2127b69cc06d8343a420a1339b54e047aaa383d543e2dace789599641830','bench',10,X'789C5356484ACD4BCED02BA804001061035B');
INSERT INTO "artifacts" VALUES('00f10b6e18c8faf4f8737cdcc7f3203f010c465a8b8c9fb38d545276df6dc015','python',12,X'789C5356C848CD29482D2AD62BA804001964044E');
INSERT INTO "artifacts" VALUES('845e91831319e89c4d656bdb80c278ac09a7230d61e5dfd2e1b1fbb436ac8917','report',6,X'789C2B4A2DC82F2A01000910029D');
CREATE TABLE audit (
	id INTEGER NOT NULL, 
	at TEXT NOT NULL, 
	who TEXT NOT NULL, 
	action TEXT NOT NULL, 
	target TEXT NOT NULL, 
	address TEXT NOT NULL, 
	status INTEGER NOT NULL, 
	reason TEXT NOT NULL, 
	CONSTRAINT pk_audit PRIMARY KEY (id)
)
 STRICT

;
INSERT INTO "audit" VALUES(1,'2025-01-03 00:00:00.000000','box','send a run','run 1','127.0.0.1',201,'');
CREATE TABLE binaries (
	id INTEGER NOT NULL, 
	digest TEXT NOT NULL, 
	record TEXT NOT NULL, 
	signatures TEXT NOT NULL, 
	CONSTRAINT pk_binaries PRIMARY KEY (id), 
	CONSTRAINT uq_binaries_digest UNIQUE (digest)
)
 STRICT

;
INSERT INTO "binaries" VALUES(1,'e071541b4126ea1d6931863f22464b7ca1a67e96c4e704f369766ccc8044b071','{"case":{"benchmark":"transpose","variant":"tiled","point":[["n",64]],"version":1,"formerly":[]},"kind":"kernel","buffers":[],"steps":[],"modules":["7c9b185f35cce03019b3c7cebdef327545fd0cfdeb1acdf7db7fd7d528c74538"],"bench":"e7ed2127b69cc06d8343a420a1339b54e047aaa383d543e2dace789599641830","seed":7,"graph":"","format":1,"gpus":1}','154e1de319b9:85ff46cade4e830555efac3a4cf41a579b37a331a45ae9bbc90100a66d91a8d0');
CREATE TABLE binary_files (
	binary_id INTEGER NOT NULL, 
	role TEXT NOT NULL, 
	name TEXT NOT NULL, 
	sha256 TEXT NOT NULL, 
	CONSTRAINT pk_binary_files PRIMARY KEY (binary_id, role, name), 
	CONSTRAINT fk_binary_files_binary_id_binaries FOREIGN KEY(binary_id) REFERENCES binaries (id) ON DELETE CASCADE, 
	CONSTRAINT fk_binary_files_sha256_artifacts FOREIGN KEY(sha256) REFERENCES artifacts (sha256) ON DELETE RESTRICT
)
 STRICT

;
INSERT INTO "binary_files" VALUES(1,'module','7c9b185f35cce03019b3c7cebdef327545fd0cfdeb1acdf7db7fd7d528c74538','7c9b185f35cce03019b3c7cebdef327545fd0cfdeb1acdf7db7fd7d528c74538');
INSERT INTO "binary_files" VALUES(1,'bench','e7ed2127b69cc06d8343a420a1339b54e047aaa383d543e2dace789599641830','e7ed2127b69cc06d8343a420a1339b54e047aaa383d543e2dace789599641830');
INSERT INTO "binary_files" VALUES(1,'source','tiled.cu','2eb2a9493f81345cfced71a0c6fa0e3c59619f33eb765fd0929e34252fa56d3d');
INSERT INTO "binary_files" VALUES(1,'python','00f10b6e18c8faf4f8737cdcc7f3203f010c465a8b8c9fb38d545276df6dc015','00f10b6e18c8faf4f8737cdcc7f3203f010c465a8b8c9fb38d545276df6dc015');
CREATE TABLE bisections (
	id INTEGER NOT NULL, 
	finding_id INTEGER NOT NULL, 
	answer TEXT NOT NULL, 
	stored_at TEXT NOT NULL, 
	CONSTRAINT pk_bisections PRIMARY KEY (id), 
	CONSTRAINT fk_bisections_finding_id_findings FOREIGN KEY(finding_id) REFERENCES findings (id) ON DELETE CASCADE
)
 STRICT

;
INSERT INTO "bisections" VALUES(1,1,'{"case":{"benchmark":"transpose","variant":"shared","point":[["n",64]],"version":1,"formerly":["tiled"]},"device":{"kind":"cuda","spec":"cuda:GPU-1","uuid":"GPU-1","model":"NVIDIA H100","target":"sm_90","compute_capability":"9.0","multiprocessors":132,"clock_hz":0.0,"memory_clock_hz":0.0,"memory_bytes":0,"l2_bytes":0,"shared_bytes_per_block":0,"registers_per_block":0,"warp_size":0,"driver":"","power_limit_w":0.0,"interconnect":"NVLink"},"cache":"cold","good":{"hash":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","subject":"fast","author":"Ann <ann@example.com>","date":"2025-01-01T00:00:00Z","parents":["000000000000000000000000000000"]},"bad":{"hash":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb","subject":"slow","author":"Ann <ann@example.com>","date":"2025-01-02T00:00:00Z","parents":["000000000000000000000000000000"]},"threshold":0.125,"seed":7,"metric":"time","commits":2,"builds":3,"compiled":2,"codes":2,"verdict":"regression","reason":"the case is slower at this commit","boundary":1.5,"culprits":[{"hash":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb","subject":"slow","author":"Ann <ann@example.com>","date":"2025-01-02T00:00:00Z","parents":["000000000000000000000000000000"]}],"proof":{"before":{"hash":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","subject":"fast","author":"Ann <ann@example.com>","date":"2025-01-01T00:00:00Z","parents":["000000000000000000000000000000"]},"after":{"hash":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb","subject":"slow","author":"Ann <ann@example.com>","date":"2025-01-02T00:00:00Z","parents":["000000000000000000000000000000"]},"verdict":"regression","reason":"the case is slower","ratio":2.0,"low":1.5,"high":2.5,"looks":1,"baseline":[{"case":{"benchmark":"transpose","variant":"tiled","point":[["n",64]],"version":1,"formerly":[]},"device":"GPU-1","replica":0,"status":"ok","cache":"cold","reason":"","cure":"","samples_s":[0.5],"places_s":[],"max_error":null,"mean_error":null,"metrics":{},"stopped":"","batches":[],"warmup":0,"note":"","wall_s":0.0,"check_s":0.0,"sampling_s":0.0,"busy_s":0.0,"python":null,"files":{}}],"candidate":[{"case":{"benchmark":"transpose","variant":"tiled","point":[["n",64]],"version":1,"formerly":[]},"device":"GPU-1","replica":1,"status":"ok","cache":"cold","reason":"","cure":"","samples_s":[1.0],"places_s":[],"max_error":null,"mean_error":null,"metrics":{},"stopped":"","batches":[],"warmup":0,"note":"","wall_s":0.0,"check_s":0.0,"sampling_s":0.0,"busy_s":0.0,"python":null,"files":{}}]},"changed":["binary"],"files":["kernels/tiled.cu"],"trials":[{"before":{"hash":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","subject":"fast","author":"Ann <ann@example.com>","date":"2025-01-01T00:00:00Z","parents":["000000000000000000000000000000"]},"after":{"hash":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb","subject":"slow","author":"Ann <ann@example.com>","date":"2025-01-02T00:00:00Z","parents":["000000000000000000000000000000"]},"verdict":"regression","reason":"the case is slower","ratio":2.0,"low":1.5,"high":2.5,"looks":1,"baseline":[{"case":{"benchmark":"transpose","variant":"tiled","point":[["n",64]],"version":1,"formerly":[]},"device":"GPU-1","replica":0,"status":"ok","cache":"cold","reason":"","cure":"","samples_s":[0.5],"places_s":[],"max_error":null,"mean_error":null,"metrics":{},"stopped":"","batches":[],"warmup":0,"note":"","wall_s":0.0,"check_s":0.0,"sampling_s":0.0,"busy_s":0.0,"python":null,"files":{}}],"candidate":[{"case":{"benchmark":"transpose","variant":"tiled","point":[["n",64]],"version":1,"formerly":[]},"device":"GPU-1","replica":1,"status":"ok","cache":"cold","reason":"","cure":"","samples_s":[1.0],"places_s":[],"max_error":null,"mean_error":null,"metrics":{},"stopped":"","batches":[],"warmup":0,"note":"","wall_s":0.0,"check_s":0.0,"sampling_s":0.0,"busy_s":0.0,"python":null,"files":{}}]}],"skipped":[{"commit":{"hash":"cccccccccccccccccccccccccccccc","subject":"broken","author":"Ann <ann@example.com>","date":"2025-01-03T00:00:00Z","parents":["000000000000000000000000000000"]},"reason":"it does not compile"}],"wall_s":7.0}','2026-11-29 17:47:22.074662');
CREATE TABLE cases (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	benchmark TEXT NOT NULL, 
	variant TEXT NOT NULL, 
	point TEXT NOT NULL, 
	version INTEGER NOT NULL, 
	CONSTRAINT pk_cases PRIMARY KEY (id), 
	CONSTRAINT uq_cases_benchmark_variant_point_version UNIQUE (benchmark, variant, point, version)
)
 STRICT

;
INSERT INTO "cases" VALUES(1,'transpose/shared[n=64]','transpose','shared','{"n":64}',1);
INSERT INTO "cases" VALUES(2,'transpose/naive[n=64]','transpose','naive','{"n":64}',1);
CREATE TABLE checked_kernels (
	check_id INTEGER NOT NULL, 
	case_id INTEGER NOT NULL, 
	architecture TEXT NOT NULL, 
	kernel TEXT NOT NULL, 
	status TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	facts_id INTEGER, 
	threads INTEGER NOT NULL, 
	dynamic_shared_bytes INTEGER NOT NULL, 
	warps INTEGER, 
	most_warps INTEGER, 
	limiter TEXT, 
	source TEXT NOT NULL, 
	verdict TEXT, 
	verdict_reason TEXT NOT NULL, 
	cause TEXT, 
	baseline_check_id INTEGER, 
	level INTEGER NOT NULL, 
	CONSTRAINT pk_checked_kernels PRIMARY KEY (check_id, case_id, architecture, kernel), 
	CONSTRAINT fk_checked_kernels_baseline_check_id_checks FOREIGN KEY(baseline_check_id) REFERENCES checks (id) ON DELETE SET NULL, 
	CONSTRAINT fk_checked_kernels_case_id_cases FOREIGN KEY(case_id) REFERENCES cases (id) ON DELETE RESTRICT, 
	CONSTRAINT fk_checked_kernels_check_id_checks FOREIGN KEY(check_id) REFERENCES checks (id) ON DELETE CASCADE, 
	CONSTRAINT fk_checked_kernels_facts_id_facts FOREIGN KEY(facts_id) REFERENCES facts (id) ON DELETE RESTRICT
)
 STRICT

;
INSERT INTO "checked_kernels" VALUES(1,1,'sm_90','tiled','ok','',1,256,0,64,64,'warps','','new','',NULL,NULL,1);
INSERT INTO "checked_kernels" VALUES(1,2,'sm_90','','failed','does not compile',NULL,0,0,NULL,NULL,NULL,'','broken','does not compile',NULL,NULL,0);
CREATE TABLE checks (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	uid TEXT NOT NULL, 
	checked_at TEXT NOT NULL, 
	suite TEXT NOT NULL, 
	scope TEXT NOT NULL, 
	command_line TEXT NOT NULL, 
	git_commit TEXT NOT NULL, 
	git_dirty INTEGER NOT NULL, 
	git_branch TEXT NOT NULL, 
	host TEXT NOT NULL, 
	perfsvc_version TEXT NOT NULL, 
	toolkit TEXT NOT NULL, 
	disassembler TEXT NOT NULL, 
	accepted TEXT NOT NULL, 
	CONSTRAINT uq_checks_uid UNIQUE (uid)
)
 STRICT

;
INSERT INTO "checks" VALUES(1,'d68c3a674e00468ab6bc56adf4a2c116','2025-01-01 00:00:00.000000','kernels','kernels','perfsvc run','abc',0,'','box','','nvcc 13.0.88','nvdisasm 13.5.37','');
CREATE TABLE confirmation_runs (
	confirmation_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	side TEXT NOT NULL, 
	status TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	samples BLOB, 
	sample_count INTEGER NOT NULL, 
	value REAL, 
	wall_s REAL NOT NULL, 
	sm_clock_hz REAL, 
	temperature_c REAL, 
	power_w REAL, 
	slowdowns TEXT NOT NULL, 
	rejected_batches INTEGER NOT NULL, 
	CONSTRAINT pk_confirmation_runs PRIMARY KEY (confirmation_id, number), 
	CONSTRAINT fk_confirmation_runs_confirmation_id_confirmations FOREIGN KEY(confirmation_id) REFERENCES confirmations (id) ON DELETE CASCADE
)
 STRICT

;
INSERT INTO "confirmation_runs" VALUES(1,1,'baseline','ok','',X'789C636068B0636060B00700047D00FE',2,NULL,0.0,NULL,NULL,NULL,'',0);
INSERT INTO "confirmation_runs" VALUES(1,0,'candidate','ok','',X'789C636060B0676068B00700028200FF',2,NULL,0.0,NULL,NULL,NULL,'',0);
INSERT INTO "confirmation_runs" VALUES(2,0,'baseline','ok','',X'789C636068B00300014200BF',1,0.5,0.0,NULL,NULL,NULL,'',0);
CREATE TABLE confirmations (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	series_id INTEGER NOT NULL, 
	baseline_run_id INTEGER, 
	judged TEXT NOT NULL, 
	judged_ratio REAL, 
	judged_baseline_s REAL, 
	judged_candidate_s REAL, 
	change TEXT NOT NULL, 
	direction TEXT NOT NULL, 
	cause TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	verdict TEXT, 
	ratio REAL, 
	low REAL, 
	high REAL, 
	looks INTEGER NOT NULL, 
	drift REAL, 
	same_code INTEGER, 
	threshold REAL NOT NULL, 
	seed INTEGER NOT NULL, 
	budget_s REAL NOT NULL, 
	wall_s REAL NOT NULL, 
	confirmed_at TEXT NOT NULL, 
	CONSTRAINT pk_confirmations PRIMARY KEY (id), 
	CONSTRAINT fk_confirmations_baseline_run_id_runs FOREIGN KEY(baseline_run_id) REFERENCES runs (id) ON DELETE SET NULL, 
	CONSTRAINT fk_confirmations_series_id_series FOREIGN KEY(series_id) REFERENCES series (id) ON DELETE RESTRICT, 
	CONSTRAINT fk_confirmations_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
)
 STRICT

;
INSERT INTO "confirmations" VALUES(1,2,1,1,'regression',1.0,0.25,0.5,'regression','slower','kernel','the old one is faster','regression',2.0,1.5,2.5,1,1.0,0,0.125,7,20.0,4.0,'2026-11-29 17:47:22.020383');
INSERT INTO "confirmations" VALUES(2,2,4,1,'regression',1.0,0.25,0.5,'regression','slower','noise','',NULL,NULL,NULL,NULL,0,NULL,NULL,0.01,7,20.0,0.0,'2026-11-29 17:47:22.023928');
CREATE TABLE deliveries (
	message_id INTEGER NOT NULL, 
	target TEXT NOT NULL, 
	attempts INTEGER NOT NULL, 
	error TEXT NOT NULL, 
	tried_at TEXT, 
	sent_at TEXT, 
	CONSTRAINT pk_deliveries PRIMARY KEY (message_id, target), 
	CONSTRAINT fk_deliveries_message_id_messages FOREIGN KEY(message_id) REFERENCES messages (id) ON DELETE CASCADE
)
 STRICT

;
INSERT INTO "deliveries" VALUES(1,'team',2,'timeout','2025-01-01 00:00:00.000000',NULL);
CREATE TABLE devices (
	id INTEGER NOT NULL, 
	uuid TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	spec TEXT NOT NULL, 
	model TEXT NOT NULL, 
	target TEXT NOT NULL, 
	compute_capability TEXT NOT NULL, 
	multiprocessors INTEGER NOT NULL, 
	clock_hz REAL NOT NULL, 
	memory_clock_hz REAL NOT NULL, 
	memory_bytes INTEGER NOT NULL, 
	l2_bytes INTEGER NOT NULL, 
	shared_bytes_per_block INTEGER NOT NULL, 
	registers_per_block INTEGER NOT NULL, 
	warp_size INTEGER NOT NULL, 
	interconnect TEXT DEFAULT '' NOT NULL, 
	CONSTRAINT pk_devices PRIMARY KEY (id), 
	CONSTRAINT uq_devices_uuid UNIQUE (uuid)
)
 STRICT

;
INSERT INTO "devices" VALUES(1,'GPU-1','cuda','cuda:GPU-1','NVIDIA H100','sm_90','9.0',132,0.0,0.0,0,0,0,0,0,'NVLink');
CREATE TABLE environments (
	id INTEGER NOT NULL, 
	driver TEXT NOT NULL, 
	toolkit TEXT NOT NULL, 
	power_limit_w REAL NOT NULL, 
	places INTEGER NOT NULL, 
	parts TEXT NOT NULL, 
	parts_digest TEXT NOT NULL, 
	CONSTRAINT pk_environments PRIMARY KEY (id), 
	CONSTRAINT uq_environments UNIQUE (driver, toolkit, power_limit_w, places, parts_digest)
)
 STRICT

;
INSERT INTO "environments" VALUES(1,'580.1','nvcc 13.0.88',700.0,1,'{"gpu.ecc": "on", "variable.CUDA_X": "1"}','09a59a1a3c9b1e46aa15cfc33baee003d0a1980934ccb32439ccd038fd08981d');
CREATE TABLE exclusions (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	case_id INTEGER, 
	reason TEXT NOT NULL, 
	excluded_by TEXT NOT NULL, 
	excluded_at TEXT NOT NULL, 
	included_by TEXT DEFAULT '' NOT NULL, 
	included_at TEXT, 
	deleted INTEGER NOT NULL, 
	CONSTRAINT pk_exclusions PRIMARY KEY (id), 
	CONSTRAINT fk_exclusions_case_id_cases FOREIGN KEY(case_id) REFERENCES cases (id) ON DELETE RESTRICT
)
 STRICT

;
INSERT INTO "exclusions" VALUES(1,1,2,'the GPU was shared','ann','2026-11-29 17:47:22.077089','bob','2026-11-29 17:47:22.084877',0);
CREATE TABLE expectations (
	id INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	host TEXT NOT NULL, 
	scope TEXT NOT NULL, 
	name TEXT NOT NULL, 
	devices TEXT NOT NULL, 
	model TEXT NOT NULL, 
	night INTEGER NOT NULL, 
	run_id INTEGER, 
	seen_at TEXT NOT NULL, 
	finding_id INTEGER, 
	CONSTRAINT pk_expectations PRIMARY KEY (id), 
	CONSTRAINT fk_expectations_finding_id_findings FOREIGN KEY(finding_id) REFERENCES findings (id) ON DELETE SET NULL, 
	CONSTRAINT fk_expectations_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE SET NULL, 
	CONSTRAINT uq_expectations_host_scope_kind_name_devices UNIQUE (host, scope, kind, name, devices)
)
 STRICT

;
INSERT INTO "expectations" VALUES(1,'gpu','box','kernels','GPU-2','auto','NVIDIA H100',1,NULL,'2025-01-01 00:00:00.000000',2);
CREATE TABLE explanations (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	baseline_run_id INTEGER, 
	case_id INTEGER NOT NULL, 
	device_id INTEGER NOT NULL, 
	baseline_profile_id INTEGER, 
	candidate_profile_id INTEGER, 
	sentence TEXT NOT NULL, 
	reasons TEXT NOT NULL, 
	factor REAL, 
	reason TEXT NOT NULL, 
	explained_at TEXT NOT NULL, 
	CONSTRAINT pk_explanations PRIMARY KEY (id), 
	CONSTRAINT fk_explanations_baseline_profile_id_profiles FOREIGN KEY(baseline_profile_id) REFERENCES profiles (id) ON DELETE SET NULL, 
	CONSTRAINT fk_explanations_baseline_run_id_runs FOREIGN KEY(baseline_run_id) REFERENCES runs (id) ON DELETE SET NULL, 
	CONSTRAINT fk_explanations_candidate_profile_id_profiles FOREIGN KEY(candidate_profile_id) REFERENCES profiles (id) ON DELETE SET NULL, 
	CONSTRAINT fk_explanations_case_id_cases FOREIGN KEY(case_id) REFERENCES cases (id) ON DELETE RESTRICT, 
	CONSTRAINT fk_explanations_device_id_devices FOREIGN KEY(device_id) REFERENCES devices (id) ON DELETE RESTRICT, 
	CONSTRAINT fk_explanations_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
)
 STRICT

;
INSERT INTO "explanations" VALUES(1,2,1,1,1,1,2,'fewer warps','[{"kind":"lower occupancy","share":0.9,"detail":"32 → 16 warps","evidence":[{"metric":"achieved_occupancy","before":0.5,"after":null}],"rules":[{"name":"Occupancy","message":"few warps","speedup":0.5}],"follows":null,"counted":"instructions","before":[{"share":0.75,"instruction":"LDG.E R2, [R4.64]","instructions":2,"source":null,"text":"","changed":false}],"after":[{"share":1.0,"instruction":"LDG.E R2, [R4.64]","instructions":1,"source":{"file":"tile.cuh","line":31},"text":"t = a[i];","changed":true}]}]',2.0,'','2026-11-29 17:47:22.040713');
CREATE TABLE facts (
	id INTEGER NOT NULL, 
	digest TEXT NOT NULL, 
	registers INTEGER NOT NULL, 
	stack_bytes INTEGER NOT NULL, 
	spill_store_bytes INTEGER NOT NULL, 
	spill_load_bytes INTEGER NOT NULL, 
	shared_bytes INTEGER NOT NULL, 
	barriers INTEGER NOT NULL, 
	instructions TEXT, 
	sass TEXT NOT NULL, 
	CONSTRAINT pk_facts PRIMARY KEY (id), 
	CONSTRAINT uq_facts_digest UNIQUE (digest)
)
 STRICT

;
INSERT INTO "facts" VALUES(1,'1d028de3a93c6f29f254eb671c39adf88c11047d51e0ad16bfc97edfd0d1dc36',32,0,0,0,4224,1,'{"global":8}','aa');
CREATE TABLE finding_cases (
	id INTEGER NOT NULL, 
	finding_id INTEGER NOT NULL, 
	series_id INTEGER NOT NULL, 
	step INTEGER NOT NULL, 
	root_cause TEXT DEFAULT '' NOT NULL, 
	change TEXT NOT NULL, 
	direction TEXT NOT NULL, 
	ratio REAL, 
	low REAL, 
	high REAL, 
	baseline_run_id INTEGER, 
	baseline_s REAL, 
	candidate_s REAL, 
	first_run_id INTEGER, 
	level_run_id INTEGER, 
	last_run_id INTEGER NOT NULL, 
	recovered_run_id INTEGER, 
	CONSTRAINT pk_finding_cases PRIMARY KEY (id), 
	CONSTRAINT fk_finding_cases_baseline_run_id_runs FOREIGN KEY(baseline_run_id) REFERENCES runs (id) ON DELETE SET NULL, 
	CONSTRAINT fk_finding_cases_series_id_series FOREIGN KEY(series_id) REFERENCES series (id) ON DELETE RESTRICT, 
	CONSTRAINT fk_finding_cases_finding_id_findings FOREIGN KEY(finding_id) REFERENCES findings (id) ON DELETE CASCADE, 
	CONSTRAINT fk_finding_cases_first_run_id_runs FOREIGN KEY(first_run_id) REFERENCES runs (id) ON DELETE SET NULL, 
	CONSTRAINT fk_finding_cases_last_run_id_runs FOREIGN KEY(last_run_id) REFERENCES runs (id) ON DELETE RESTRICT, 
	CONSTRAINT fk_finding_cases_level_run_id_runs FOREIGN KEY(level_run_id) REFERENCES runs (id) ON DELETE SET NULL, 
	CONSTRAINT fk_finding_cases_recovered_run_id_runs FOREIGN KEY(recovered_run_id) REFERENCES runs (id) ON DELETE SET NULL, 
	CONSTRAINT uq_finding_cases_finding_id_series_id_step UNIQUE (finding_id, series_id, step)
)
 STRICT

;
INSERT INTO "finding_cases" VALUES(1,1,1,1,'abc..def','regression','slower',1.0,0.9,1.1,1,0.25,0.5,2,2,2,NULL);
CREATE TABLE finding_events (
	id INTEGER NOT NULL, 
	finding_id INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	run_id INTEGER, 
	night INTEGER, 
	done_by TEXT NOT NULL, 
	done_at TEXT NOT NULL, 
	text TEXT NOT NULL, 
	CONSTRAINT pk_finding_events PRIMARY KEY (id), 
	CONSTRAINT fk_finding_events_finding_id_findings FOREIGN KEY(finding_id) REFERENCES findings (id) ON DELETE CASCADE, 
	CONSTRAINT fk_finding_events_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE SET NULL
)
 STRICT

;
INSERT INTO "finding_events" VALUES(1,1,'raised',2,NULL,'','2026-11-29 17:47:21.999018','the old one is faster');
INSERT INTO "finding_events" VALUES(2,1,'assigned',NULL,NULL,'ann','2026-11-29 17:47:22.011261','bob');
INSERT INTO "finding_events" VALUES(3,1,'ignored',NULL,NULL,'ann','2026-11-29 17:47:22.016654','wanted; until 2026-01-01');
INSERT INTO "finding_events" VALUES(4,2,'raised',NULL,1,'','2025-01-01 00:00:00.000000','last seen in night 1');
CREATE TABLE findings (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	uid TEXT NOT NULL, 
	cause TEXT NOT NULL, 
	root_cause TEXT DEFAULT '' NOT NULL, 
	first_run_id INTEGER, 
	last_run_id INTEGER, 
	evidence TEXT NOT NULL, 
	state TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	set_by TEXT NOT NULL, 
	set_at TEXT NOT NULL, 
	decided INTEGER NOT NULL, 
	owner TEXT DEFAULT '' NOT NULL, 
	ignored_until TEXT, 
	CONSTRAINT fk_findings_first_run_id_runs FOREIGN KEY(first_run_id) REFERENCES runs (id) ON DELETE RESTRICT, 
	CONSTRAINT fk_findings_last_run_id_runs FOREIGN KEY(last_run_id) REFERENCES runs (id) ON DELETE RESTRICT, 
	CONSTRAINT uq_findings_uid UNIQUE (uid)
)
 STRICT

;
INSERT INTO "findings" VALUES(1,'bd4a1d8b7e414f7f90217f1e36ec1075','kernel','abc..def',2,2,'the old one is faster','ignored','wanted','ann','2026-11-29 17:47:22.016654',1,'bob','2026-01-01 00:00:00.000000');
INSERT INTO "findings" VALUES(2,'745d5f5700e04a868c719f46f8b3b3fd','missing','GPU-2 (NVIDIA H100) on host box',NULL,NULL,'last seen in night 1','open','','','2025-01-01 00:00:00.000000',0,'',NULL);
CREATE TABLE former_names (
	case_id INTEGER NOT NULL, 
	variant TEXT NOT NULL, 
	name TEXT NOT NULL, 
	until_run INTEGER, 
	CONSTRAINT pk_former_names PRIMARY KEY (case_id, variant), 
	CONSTRAINT fk_former_names_case_id_cases FOREIGN KEY(case_id) REFERENCES cases (id) ON DELETE CASCADE
)
 STRICT

;
INSERT INTO "former_names" VALUES(1,'tiled','transpose/tiled[n=64]',1);
CREATE TABLE full_environments (
	id INTEGER NOT NULL, 
	digest TEXT NOT NULL, 
	parts TEXT NOT NULL, 
	CONSTRAINT pk_full_environments PRIMARY KEY (id), 
	CONSTRAINT uq_full_environments_digest UNIQUE (digest)
)
 STRICT

;
INSERT INTO "full_environments" VALUES(1,'f1fe92d60ccab830d489a088968fab066e5919df1ae6417ac3d6d25cf1a05e03','{"common": {"host.kernel": "6.1", "package.triton": "3.4.0", "variable.CUDA_X": "1"}, "devices": {"GPU-1": {"gpu.ecc": "on"}}}');
INSERT INTO "full_environments" VALUES(2,'ac832062a9cbe3786acf9538164a6c4df4c5cdaec65b098ca29000f125272da2','{"common": {"host.kernel": "6.1", "package.triton": "3.4.0", "variable.CUDA_X": "2"}, "devices": {"GPU-1": {"gpu.ecc": "off"}}}');
CREATE TABLE gpu_peaks (
	device_id INTEGER NOT NULL, 
	driver TEXT NOT NULL, 
	power_limit_w REAL NOT NULL, 
	name TEXT NOT NULL, 
	rate REAL NOT NULL, 
	version INTEGER NOT NULL, 
	measured_at TEXT NOT NULL, 
	CONSTRAINT pk_gpu_peaks PRIMARY KEY (device_id, driver, power_limit_w, name), 
	CONSTRAINT fk_gpu_peaks_device_id_devices FOREIGN KEY(device_id) REFERENCES devices (id) ON DELETE RESTRICT
)
 STRICT

;
INSERT INTO "gpu_peaks" VALUES(1,'580.1',700.0,'tf32',400000000000000.0,1,'2026-11-29 17:47:21.978735');
CREATE TABLE imports (
	digest TEXT NOT NULL, 
	run_id INTEGER NOT NULL, 
	format TEXT NOT NULL, 
	path TEXT NOT NULL, 
	imported_at TEXT NOT NULL, 
	CONSTRAINT pk_imports PRIMARY KEY (digest, run_id), 
	CONSTRAINT fk_imports_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
)
 STRICT

;
INSERT INTO "imports" VALUES('abababababababababababababababababababababababababababababababab',1,'nvbench','out.json','2025-01-01 00:00:00.000000');
CREATE TABLE levels (
	run_id INTEGER NOT NULL, 
	series_id INTEGER NOT NULL, 
	status TEXT, 
	reason TEXT NOT NULL, 
	environment_id INTEGER, 
	binary_id INTEGER, 
	python_code_id INTEGER, 
	medians BLOB, 
	level REAL, 
	level_low REAL, 
	level_high REAL, 
	spread REAL, 
	step_s REAL, 
	noise_within REAL, 
	noise_between REAL, 
	noise_places REAL, 
	lowest_place_s REAL, 
	highest_place_s REAL, 
	excluded TEXT, 
	verdict TEXT, 
	verdict_reason TEXT, 
	ratio REAL, 
	low REAL, 
	high REAL, 
	baseline_run_id INTEGER, 
	baseline_s REAL, 
	smallest REAL, 
	baseline_replicas INTEGER, 
	baseline_runs INTEGER, 
	between_nights REAL, 
	cause TEXT, 
	CONSTRAINT pk_levels PRIMARY KEY (run_id, series_id), 
	CONSTRAINT fk_levels_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE, 
	CONSTRAINT fk_levels_series_id_series FOREIGN KEY(series_id) REFERENCES series (id) ON DELETE RESTRICT, 
	CONSTRAINT fk_levels_environment_id_environments FOREIGN KEY(environment_id) REFERENCES environments (id) ON DELETE RESTRICT
)
 WITHOUT ROWID,
 STRICT

;
INSERT INTO "levels" VALUES(1,1,'ok','',1,1,NULL,X'000000000000D83F000000000000C03F',2.16506350946109649147e-01,2.01497873477854335397e-04,2.32632728032992389436e+02,0.513830773824539,0.25,4.94200739501867325476e-01,NULL,NULL,NULL,NULL,NULL,'new','',NULL,NULL,NULL,NULL,NULL,NULL,NULL,1,NULL,NULL);
INSERT INTO "levels" VALUES(1,2,'failed','does not compile',1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "levels" VALUES(2,1,'ok','',1,NULL,NULL,X'000000000000E03F',0.5,0.5,0.5,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'unchanged','',1.0,0.9,1.1,1,0.25,0.125,6,3,0.0625,NULL);
INSERT INTO "levels" VALUES(2,3,'ok','',1,NULL,NULL,X'000000000000E83F',0.75,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'regression','',1.0,0.9,1.1,1,0.25,0.125,6,3,0.0625,'kernel');
CREATE TABLE measurements (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	case_id INTEGER NOT NULL, 
	device_id INTEGER NOT NULL, 
	environment_id INTEGER NOT NULL, 
	binary_id INTEGER, 
	python_code_id INTEGER, 
	replica INTEGER NOT NULL, 
	cache TEXT NOT NULL, 
	status TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	cure TEXT NOT NULL, 
	sample_count INTEGER NOT NULL, 
	median_s REAL, 
	low_s REAL, 
	high_s REAL, 
	max_error REAL, 
	mean_error REAL, 
	read_bytes INTEGER NOT NULL, 
	written_bytes INTEGER NOT NULL, 
	flops INTEGER NOT NULL, 
	precision TEXT DEFAULT '' NOT NULL, 
	link_bytes INTEGER DEFAULT '0' NOT NULL, 
	stopped TEXT NOT NULL, 
	wall_s REAL NOT NULL, 
	measured_at TEXT NOT NULL, 
	warmup INTEGER, 
	note TEXT DEFAULT '' NOT NULL, 
	check_s REAL, 
	sampling_s REAL, 
	busy_s REAL, 
	sm_clock_hz REAL, 
	temperature_c REAL, 
	power_w REAL, 
	slowdowns TEXT DEFAULT '' NOT NULL, 
	rejected_batches INTEGER DEFAULT '0' NOT NULL, 
	ecc_errors INTEGER DEFAULT '0' NOT NULL, 
	xids TEXT DEFAULT '' NOT NULL, 
	others TEXT DEFAULT '' NOT NULL, 
	variant_index INTEGER, 
	relative_to TEXT DEFAULT '' NOT NULL, 
	samples BLOB, 
	place_medians BLOB, 
	batches BLOB, 
	CONSTRAINT pk_measurements PRIMARY KEY (id), 
	CONSTRAINT fk_measurements_binary_id_binaries FOREIGN KEY(binary_id) REFERENCES binaries (id) ON DELETE SET NULL, 
	CONSTRAINT fk_measurements_case_id_cases FOREIGN KEY(case_id) REFERENCES cases (id) ON DELETE RESTRICT, 
	CONSTRAINT fk_measurements_device_id_devices FOREIGN KEY(device_id) REFERENCES devices (id) ON DELETE RESTRICT, 
	CONSTRAINT fk_measurements_environment_id_environments FOREIGN KEY(environment_id) REFERENCES environments (id) ON DELETE RESTRICT, 
	CONSTRAINT fk_measurements_python_code_id_python_codes FOREIGN KEY(python_code_id) REFERENCES python_codes (id) ON DELETE SET NULL, 
	CONSTRAINT fk_measurements_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE, 
	CONSTRAINT uq_measurements_run_id_case_id_device_id_replica_cache UNIQUE (run_id, case_id, device_id, replica, cache)
)
 STRICT

;
INSERT INTO "measurements" VALUES(1,1,1,1,1,1,NULL,0,'cold','ok','','',2,0.375,0.375,0.375,NULL,NULL,1,2,3,'tf32',4,'',0.0,'2026-11-29 17:47:21.806006',0,'',0.0,0.0,0.0,NULL,NULL,NULL,'',0,0,'','',NULL,'',X'789C636060B0676068B00300028100FE',NULL,NULL);
INSERT INTO "measurements" VALUES(2,1,1,1,1,1,1,1,'cold','ok','','',1,0.125,0.125,0.125,NULL,NULL,1,2,3,'tf32',4,'',0.0,'2026-11-29 17:47:21.877417',0,'',0.0,0.0,0.0,NULL,NULL,NULL,'',0,0,'','',NULL,'',X'789C636060B003000042003F',NULL,NULL);
INSERT INTO "measurements" VALUES(3,1,2,1,1,NULL,NULL,0,'cold','failed','does not compile','',0,NULL,NULL,NULL,NULL,NULL,1,2,3,'tf32',4,'',0.0,'2026-11-29 17:47:21.885527',0,'',0.0,0.0,0.0,NULL,NULL,NULL,'',0,0,'','',NULL,'',NULL,NULL,NULL);
INSERT INTO "measurements" VALUES(4,2,1,1,1,NULL,NULL,0,'cold','ok','','',1,0.5,0.5,0.5,NULL,NULL,1,2,3,'tf32',4,'',4.0,'2026-11-29 17:47:21.974807',3,'the host fell behind once',0.25,3.5,3.25,1500000000.0,90.0,500.0,'power cap, thermal slowdown',1,1,'48','99',2,'copy',X'789C636060B0070000430040',X'789C636060B0676070B00700020200BF',X'789C6D8DC10A833010447F45721EC226A86DBE65D943D0941ED246A292DF37A2C5439DC3B033B06F980D48F7B683E9E814EC75F6841AB0E4351CA614584DA984DC0C7E52226026FDA8FF9A041686EE308ED0FE302F1FE7CA59DE217F7C6CE698CA98CA77E7FE7502036E9F75C43911D90007902FF8');
CREATE TABLE messages (
	id INTEGER NOT NULL, 
	night_id INTEGER, 
	event_id INTEGER, 
	"key" TEXT NOT NULL, 
	title TEXT NOT NULL, 
	body TEXT NOT NULL, 
	created_at TEXT NOT NULL, 
	CONSTRAINT pk_messages PRIMARY KEY (id), 
	CONSTRAINT fk_messages_night_id_nights FOREIGN KEY(night_id) REFERENCES nights (id) ON DELETE CASCADE, 
	CONSTRAINT uq_messages_key UNIQUE ("key")
)
 STRICT

;
INSERT INTO "messages" VALUES(1,1,NULL,'k','1 new','slower','2025-01-01 00:00:00.000000');
CREATE TABLE metrics (
	measurement_id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	value REAL, 
	CONSTRAINT pk_metrics PRIMARY KEY (measurement_id, name), 
	CONSTRAINT fk_metrics_measurement_id_measurements FOREIGN KEY(measurement_id) REFERENCES measurements (id) ON DELETE CASCADE
)
 WITHOUT ROWID,
 STRICT

;
INSERT INTO "metrics" VALUES(4,'overlap',0.75);
CREATE TABLE nights (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	uid TEXT NOT NULL, 
	state TEXT NOT NULL, 
	started_at TEXT NOT NULL, 
	finished_at TEXT, 
	host TEXT NOT NULL, 
	pid INTEGER NOT NULL, 
	process_start TEXT NOT NULL, 
	suite TEXT NOT NULL, 
	git_commit TEXT NOT NULL, 
	git_dirty INTEGER NOT NULL, 
	suite_digest TEXT NOT NULL, 
	run_id INTEGER, 
	command_line TEXT NOT NULL, 
	settings TEXT NOT NULL, 
	signatures TEXT NOT NULL, 
	exit_code INTEGER, 
	CONSTRAINT fk_nights_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE SET NULL, 
	CONSTRAINT uq_nights_uid UNIQUE (uid)
)
 STRICT

;
INSERT INTO "nights" VALUES(1,'481e7ee63a314bdfa9d74b8f9c1bb82a','interrupted','2025-01-01 00:00:00.000000','2026-11-29 17:47:22.053319','box',22213,'8495855 4026531836','kernels','def',1,'aa',2,'perfsvc nightly','{"replicas": 3}','154e1de319b9:10280fe610776a67e2589f164933effcaecdbf8a903548d8aabcdc15124e87f0',NULL);
CREATE TABLE over_budget (
	run_id INTEGER NOT NULL, 
	series_id INTEGER NOT NULL, 
	CONSTRAINT pk_over_budget PRIMARY KEY (run_id, series_id), 
	CONSTRAINT fk_over_budget_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE, 
	CONSTRAINT fk_over_budget_series_id_series FOREIGN KEY(series_id) REFERENCES series (id) ON DELETE RESTRICT
)
 STRICT

;
INSERT INTO "over_budget" VALUES(2,2);
CREATE TABLE pins (
	series_id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	set_at TEXT NOT NULL, 
	set_by TEXT NOT NULL, 
	comment TEXT NOT NULL, 
	CONSTRAINT pk_pins PRIMARY KEY (series_id), 
	CONSTRAINT fk_pins_series_id_series FOREIGN KEY(series_id) REFERENCES series (id) ON DELETE RESTRICT, 
	CONSTRAINT fk_pins_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE RESTRICT
)
 STRICT

;
INSERT INTO "pins" VALUES(1,1,'2026-11-29 17:47:22.031687','ann','release');
CREATE TABLE profile_metrics (
	profile_id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	value REAL, 
	CONSTRAINT pk_profile_metrics PRIMARY KEY (profile_id, name), 
	CONSTRAINT fk_profile_metrics_profile_id_profiles FOREIGN KEY(profile_id) REFERENCES profiles (id) ON DELETE CASCADE
)
 STRICT

;
INSERT INTO "profile_metrics" VALUES(1,'duration_s',0.25);
INSERT INTO "profile_metrics" VALUES(1,'registers',NULL);
CREATE TABLE profile_rules (
	profile_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	message TEXT NOT NULL, 
	speedup REAL, 
	CONSTRAINT pk_profile_rules PRIMARY KEY (profile_id, number), 
	CONSTRAINT fk_profile_rules_profile_id_profiles FOREIGN KEY(profile_id) REFERENCES profiles (id) ON DELETE CASCADE
)
 STRICT

;
INSERT INTO "profile_rules" VALUES(1,0,'Occupancy','few warps',0.5);
CREATE TABLE profiles (
	id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	case_id INTEGER NOT NULL, 
	device_id INTEGER NOT NULL, 
	binary_id INTEGER, 
	profiler TEXT NOT NULL, 
	sections TEXT NOT NULL, 
	kernel TEXT NOT NULL, 
	launch INTEGER, 
	chip TEXT NOT NULL, 
	profiler_version TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	cure TEXT NOT NULL, 
	instructions BLOB, 
	kernels BLOB, 
	report_sha256 TEXT, 
	wall_s REAL NOT NULL, 
	profiled_at TEXT NOT NULL, 
	CONSTRAINT pk_profiles PRIMARY KEY (id), 
	CONSTRAINT fk_profiles_binary_id_binaries FOREIGN KEY(binary_id) REFERENCES binaries (id) ON DELETE SET NULL, 
	CONSTRAINT fk_profiles_case_id_cases FOREIGN KEY(case_id) REFERENCES cases (id) ON DELETE RESTRICT, 
	CONSTRAINT fk_profiles_device_id_devices FOREIGN KEY(device_id) REFERENCES devices (id) ON DELETE RESTRICT, 
	CONSTRAINT fk_profiles_report_sha256_artifacts FOREIGN KEY(report_sha256) REFERENCES artifacts (sha256) ON DELETE RESTRICT, 
	CONSTRAINT fk_profiles_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
)
 STRICT

;
INSERT INTO "profiles" VALUES(1,1,1,1,1,'ncu','full','tiled',0,'','','','',X'789C158B3D0B80201884FF4ADC2CD2873834172D4DADD1244A8228E82B04E17FEF6D7AEE9EE3CE17C9B96209F3A005C83E9CB02F9B5CBB6314DD7928A9D50501936AA482F9858F857235E453E4AE95EC9B4049351BFBCFCE072688214DBDF91A7C64330DAD5D1F8FCE2300',X'789C8BAE56CA4BCC4D55B252CA484D4C51D2514A292D4A2CC9CCCF8B2F56B232D0333432ADD5812B29C9CC49C5540354120B00364B16BE','845e91831319e89c4d656bdb80c278ac09a7230d61e5dfd2e1b1fbb436ac8917',7.0,'2026-11-29 17:47:22.034649');
INSERT INTO "profiles" VALUES(2,2,1,1,NULL,'ncu','full','',0,'','','no permission','ask',NULL,NULL,NULL,7.0,'2026-11-29 17:47:22.039701');
CREATE TABLE python_codes (
	id INTEGER NOT NULL, 
	digest TEXT NOT NULL, 
	record TEXT NOT NULL, 
	signatures TEXT NOT NULL, 
	CONSTRAINT pk_python_codes PRIMARY KEY (id), 
	CONSTRAINT uq_python_codes_digest UNIQUE (digest)
)
 STRICT

;
INSERT INTO "python_codes" VALUES(1,'10d1decbc0166a0e53c4e6169f2d92c9813df1c2c0efe2e41a6f6ae6b2c6a5bf','{"packages":[{"name":"triton","version":"3.4.0","digest":"aa"}],"variables":[],"modules":[["helpers","00f10b6e18c8faf4f8737cdcc7f3203f010c465a8b8c9fb38d545276df6dc015"]],"kernels":[],"files":[],"inputs":[],"inputs_from":[]}','154e1de319b9:df1a300cd33991f2cbad719d1f635789b01b7e16291d7cb97217a9edc8c50d2e');
CREATE TABLE received_runs (
	digest TEXT NOT NULL, 
	run_id INTEGER NOT NULL, 
	token_id INTEGER NOT NULL, 
	"key" TEXT NOT NULL, 
	received_at TEXT NOT NULL, 
	judged_at TEXT, 
	CONSTRAINT pk_received_runs PRIMARY KEY (digest), 
	CONSTRAINT fk_received_runs_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE, 
	CONSTRAINT fk_received_runs_token_id_tokens FOREIGN KEY(token_id) REFERENCES tokens (id) ON DELETE RESTRICT, 
	CONSTRAINT uq_received_runs_token_id_key UNIQUE (token_id, "key")
)
 STRICT

;
INSERT INTO "received_runs" VALUES('cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd',1,1,'night 1','2025-01-03 00:00:00.000000','2025-01-03 00:00:00.000000');
CREATE TABLE removed_uids (
	uid TEXT NOT NULL, 
	removed_at TEXT NOT NULL, 
	CONSTRAINT pk_removed_uids PRIMARY KEY (uid)
)
 STRICT

;
CREATE TABLE run_devices (
	run_id INTEGER NOT NULL, 
	device_id INTEGER NOT NULL, 
	copy_bytes_per_s REAL, 
	read_bytes_per_s REAL, 
	environment_id INTEGER, 
	statuses TEXT, 
	rejected_batches INTEGER, 
	ecc_errors INTEGER, 
	sm_clock_hz REAL, 
	temperature_c REAL, 
	power_w REAL, 
	slowdowns TEXT, 
	xids TEXT, 
	others TEXT, 
	CONSTRAINT pk_run_devices PRIMARY KEY (run_id, device_id), 
	CONSTRAINT fk_run_devices_device_id_devices FOREIGN KEY(device_id) REFERENCES devices (id) ON DELETE RESTRICT, 
	CONSTRAINT fk_run_devices_environment_id_environments FOREIGN KEY(environment_id) REFERENCES environments (id) ON DELETE RESTRICT, 
	CONSTRAINT fk_run_devices_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
)
 STRICT

;
INSERT INTO "run_devices" VALUES(1,1,NULL,NULL,1,'{"failed": 1, "ok": 2}',0,0,NULL,NULL,NULL,'','','');
INSERT INTO "run_devices" VALUES(2,1,2000000000000.0,2500000000000.0,1,'{"ok": 1}',1,1,1500000000.0,90.0,500.0,'power cap, thermal slowdown','48','99');
CREATE TABLE runs (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	uid TEXT NOT NULL, 
	state TEXT NOT NULL, 
	started_at TEXT NOT NULL, 
	finished_at TEXT, 
	label TEXT NOT NULL, 
	suite TEXT NOT NULL, 
	scope TEXT NOT NULL, 
	command_line TEXT NOT NULL, 
	git_commit TEXT NOT NULL, 
	git_dirty INTEGER NOT NULL, 
	git_branch TEXT NOT NULL, 
	host TEXT NOT NULL, 
	cpu TEXT NOT NULL, 
	pid INTEGER NOT NULL, 
	process_start TEXT NOT NULL, 
	perfsvc_version TEXT NOT NULL, 
	python_version TEXT NOT NULL, 
	packages TEXT NOT NULL, 
	seed INTEGER NOT NULL, 
	replicas INTEGER NOT NULL, 
	cases INTEGER, 
	full_environment_id INTEGER, 
	CONSTRAINT fk_runs_full_environment_id_full_environments FOREIGN KEY(full_environment_id) REFERENCES full_environments (id) ON DELETE SET NULL, 
	CONSTRAINT uq_runs_uid UNIQUE (uid)
)
 STRICT

;
INSERT INTO "runs" VALUES(1,'73cd8a8ede9a46dab28cba16d5a4dae9','finished','2025-01-01 00:00:00.000000','2026-11-29 17:47:21.929074','first night','kernels','kernels','perfsvc run','abc',0,'','box','',22213,'8495855 4026531836','','','{"numpy": "2.4.6"}',0,0,2,1);
INSERT INTO "runs" VALUES(2,'6ca98abb4332474ca4c4a3eb5c417daf','interrupted','2025-01-02 00:00:00.000000','2026-11-29 17:47:21.981038','','kernels','kernels','perfsvc run','def',1,'','box','',22213,'8495855 4026531836','','','{}',0,0,1,2);
CREATE TABLE series (
	id INTEGER NOT NULL, 
	case_id INTEGER NOT NULL, 
	device_id INTEGER NOT NULL, 
	metric TEXT NOT NULL, 
	cache TEXT NOT NULL, 
	CONSTRAINT pk_series PRIMARY KEY (id), 
	CONSTRAINT fk_series_case_id_cases FOREIGN KEY(case_id) REFERENCES cases (id) ON DELETE RESTRICT, 
	CONSTRAINT fk_series_device_id_devices FOREIGN KEY(device_id) REFERENCES devices (id) ON DELETE RESTRICT, 
	CONSTRAINT uq_series_case_id_device_id_metric_cache UNIQUE (case_id, device_id, metric, cache)
)
 STRICT

;
INSERT INTO "series" VALUES(1,1,1,'time','cold');
INSERT INTO "series" VALUES(2,2,1,'time','cold');
INSERT INTO "series" VALUES(3,1,1,'overlap','cold');
INSERT INTO "series" VALUES(4,1,1,'energy_j','cold');
CREATE TABLE sightings (
	step_id INTEGER NOT NULL, 
	run_id INTEGER NOT NULL, 
	back INTEGER NOT NULL, 
	new_level INTEGER NOT NULL, 
	baseline_run_id INTEGER, 
	baseline_s REAL, 
	candidate_s REAL, 
	ratio REAL, 
	low REAL, 
	high REAL, 
	CONSTRAINT pk_sightings PRIMARY KEY (step_id, run_id), 
	CONSTRAINT fk_sightings_baseline_run_id_runs FOREIGN KEY(baseline_run_id) REFERENCES runs (id) ON DELETE SET NULL, 
	CONSTRAINT fk_sightings_run_id_runs FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE, 
	CONSTRAINT fk_sightings_step_id_finding_cases FOREIGN KEY(step_id) REFERENCES finding_cases (id) ON DELETE CASCADE
)
 STRICT

;
INSERT INTO "sightings" VALUES(1,2,0,0,1,0.25,0.5,1.0,0.9,1.1);
CREATE TABLE stages (
	night_id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	number INTEGER NOT NULL, 
	state TEXT NOT NULL, 
	started_at TEXT NOT NULL, 
	wall_s REAL, 
	message TEXT NOT NULL, 
	cure TEXT NOT NULL, 
	exit_code INTEGER NOT NULL, 
	CONSTRAINT pk_stages PRIMARY KEY (night_id, name), 
	CONSTRAINT fk_stages_night_id_nights FOREIGN KEY(night_id) REFERENCES nights (id) ON DELETE CASCADE
)
 STRICT

;
INSERT INTO "stages" VALUES(1,'doctor',2,'failed','2025-01-01 00:00:00.000000',0.5,'no driver','install one',5);
INSERT INTO "stages" VALUES(1,'run',4,'running','2025-01-01 00:00:00.000000',NULL,'','',0);
CREATE TABLE tokens (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	name TEXT NOT NULL, 
	scopes TEXT NOT NULL, 
	sha256 TEXT NOT NULL, 
	made_at TEXT NOT NULL, 
	made_by TEXT NOT NULL, 
	expires_at TEXT, 
	used_at TEXT, 
	revoked_at TEXT, 
	revoked_by TEXT NOT NULL, 
	CONSTRAINT uq_tokens_name UNIQUE (name), 
	CONSTRAINT uq_tokens_sha256 UNIQUE (sha256)
)
 STRICT

;
INSERT INTO "tokens" VALUES(1,'box','read,write','eb374dd4b49376eeef48e9029a756e55b6afdcf778b4d7bb7949b21230ee5221','2025-01-03 00:00:00.000000','ann',NULL,NULL,NULL,'');
CREATE INDEX ix_checks_git_commit ON checks (git_commit);
CREATE INDEX ix_checks_scope ON checks (scope);
CREATE INDEX ix_runs_full_environment_id ON runs (full_environment_id);
CREATE INDEX ix_runs_git_commit ON runs (git_commit);
CREATE INDEX ix_runs_label ON runs (label);
CREATE INDEX ix_runs_scope ON runs (scope);
CREATE INDEX ix_binary_files_sha256 ON binary_files (sha256);
CREATE INDEX ix_cases_name ON cases (name);
CREATE INDEX ix_former_names_name ON former_names (name);
CREATE INDEX ix_findings_first_run_id ON findings (first_run_id);
CREATE INDEX ix_findings_last_run_id ON findings (last_run_id);
CREATE INDEX ix_nights_host ON nights (host);
CREATE INDEX ix_nights_run_id ON nights (run_id);
CREATE INDEX ix_exclusions_case_id ON exclusions (case_id);
CREATE INDEX ix_exclusions_run_id_case_id ON exclusions (run_id, case_id);
CREATE INDEX ix_pins_run_id ON pins (run_id);
CREATE INDEX ix_checked_kernels_baseline_check_id ON checked_kernels (baseline_check_id);
CREATE INDEX ix_checked_kernels_case_id_architecture_check_id ON checked_kernels (case_id, architecture, check_id);
CREATE INDEX ix_checked_kernels_facts_id ON checked_kernels (facts_id);
CREATE INDEX ix_confirmations_baseline_run_id ON confirmations (baseline_run_id);
CREATE INDEX ix_confirmations_series_id_run_id ON confirmations (series_id, run_id);
CREATE INDEX ix_confirmations_run_id ON confirmations (run_id);
CREATE INDEX ix_bisections_finding_id ON bisections (finding_id);
CREATE INDEX ix_expectations_finding_id ON expectations (finding_id);
CREATE INDEX ix_expectations_run_id ON expectations (run_id);
CREATE INDEX ix_finding_cases_baseline_run_id ON finding_cases (baseline_run_id);
CREATE INDEX ix_finding_cases_series_id ON finding_cases (series_id);
CREATE INDEX ix_finding_cases_first_run_id ON finding_cases (first_run_id);
CREATE INDEX ix_finding_cases_last_run_id ON finding_cases (last_run_id);
CREATE INDEX ix_finding_cases_level_run_id ON finding_cases (level_run_id);
CREATE INDEX ix_finding_cases_recovered_run_id ON finding_cases (recovered_run_id);
CREATE INDEX ix_sightings_baseline_run_id ON sightings (baseline_run_id);
CREATE INDEX ix_sightings_run_id ON sightings (run_id);
CREATE INDEX ix_finding_events_finding_id ON finding_events (finding_id);
CREATE INDEX ix_finding_events_run_id ON finding_events (run_id);
CREATE INDEX ix_imports_run_id ON imports (run_id);
CREATE INDEX ix_measurements_binary_id ON measurements (binary_id);
CREATE INDEX ix_measurements_case_id_device_id_run_id ON measurements (case_id, device_id, run_id);
CREATE INDEX ix_measurements_environment_id_run_id_device_id ON measurements (environment_id, run_id, device_id);
CREATE INDEX ix_measurements_python_code_id ON measurements (python_code_id);
CREATE INDEX ix_measurements_with_samples ON measurements (run_id, case_id) WHERE samples IS NOT NULL;
CREATE INDEX ix_messages_night_id ON messages (night_id);
CREATE INDEX ix_levels_accepted ON levels (series_id) WHERE verdict IN ('new', 'improvement');
CREATE INDEX ix_levels_events ON levels (run_id) WHERE verdict IN ('regression', 'improvement', 'broken', 'missing');
CREATE INDEX ix_levels_series_id_run_id ON levels (series_id, run_id);
CREATE INDEX ix_profiles_binary_id ON profiles (binary_id);
CREATE INDEX ix_profiles_case_id_device_id_run_id ON profiles (case_id, device_id, run_id);
CREATE INDEX ix_profiles_report_sha256 ON profiles (report_sha256);
CREATE INDEX ix_profiles_run_id ON profiles (run_id);
CREATE INDEX ix_explanations_baseline_profile_id ON explanations (baseline_profile_id);
CREATE INDEX ix_explanations_baseline_run_id ON explanations (baseline_run_id);
CREATE INDEX ix_explanations_candidate_profile_id ON explanations (candidate_profile_id);
CREATE INDEX ix_explanations_case_id_device_id_run_id ON explanations (case_id, device_id, run_id);
CREATE INDEX ix_explanations_run_id ON explanations (run_id);
CREATE INDEX ix_received_runs_run_id ON received_runs (run_id);
CREATE INDEX ix_audit_at ON audit (at);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('runs',2);
INSERT INTO "sqlite_sequence" VALUES('nights',1);
INSERT INTO "sqlite_sequence" VALUES('findings',2);
INSERT INTO "sqlite_sequence" VALUES('checks',1);
INSERT INTO "sqlite_sequence" VALUES('tokens',1);
COMMIT;
