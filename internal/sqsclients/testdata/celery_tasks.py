"""A Celery application with its broker at the endpoint in SQS_ENDPOINT. Each task writes
what it did to a file of its own in RESULTS: a task that runs twice is counted twice."""

import os
import time
import uuid
from urllib.parse import urlsplit

from celery import Celery

# Without keys in the URL, credentials are those of the environment, session token
# included.
app = Celery("story", broker=f"sqs://{urlsplit(os.environ['SQS_ENDPOINT']).netloc}")
app.conf.update(
    broker_transport_options={
        "region": os.environ["AWS_REGION"], "is_secure": False, "queue_name_prefix": os.environ["PREFIX"],
        "visibility_timeout": 10, "wait_time_seconds": 2, "polling_interval": 0.1,
    },
    task_acks_late=True, task_ignore_result=True, worker_enable_remote_control=False, worker_prefetch_multiplier=4,
    broker_connection_retry_on_startup=True, broker_connection_max_retries=None,
)


@app.task(name="story.work")
def work(number):
    time.sleep(0.05)
    with open(os.path.join(os.environ["RESULTS"], f"{number}.{uuid.uuid4().hex}"), "x"):
        pass


if __name__ == "__main__":
    for number in range(int(os.environ["COUNT"])):
        work.delay(number)
    print(f"sent {os.environ['COUNT']} tasks")
